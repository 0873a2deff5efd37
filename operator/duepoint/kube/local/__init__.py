"""An in-memory API server for ``duepoint run``."""
