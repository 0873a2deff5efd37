"""An API server in memory, for ``duepoint run``: documents, rules, a store, the API itself."""
