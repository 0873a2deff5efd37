"""What a release consists of, and how each of its files is made from this repository."""
