"""The dashboard: the node live in a browser. Its page's source is in web/, and the page as built in static/."""
