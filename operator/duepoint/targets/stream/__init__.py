"""One slot, one entry: ``target`` says what it is, ``external`` appends to another Redis."""
