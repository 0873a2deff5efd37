"""Helpers for developing Duepoint: nothing here is installed with the product.

Each folder is one tool, run from the root of the repository as `python -m tools.NAME`; the Makefile
holds the usual calls. Tools may import `duepoint`, never the other way round.
"""
