"""Streams: one slot, one entry. ``target`` composes it, ``external`` appends to another Redis."""
