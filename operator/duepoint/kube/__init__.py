"""The API server; nothing else of Duepoint talks to it."""
