"""What will be on this machine, as data: made from a spec, printed, compared, kept; nothing of it is done here."""
