"""What is up here: on record before it is made, so that it can be undone after any end; and how it is started."""
