"""Users' streams: their number in a namespace, and entries for them."""
