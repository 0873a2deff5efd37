"""The files of a release, and how each is made from this repository."""
