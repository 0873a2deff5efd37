"""A Schedule's webhook tried before its time, and what was received checked."""
