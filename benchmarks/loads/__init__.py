"""One-offs of a set, submitted as ``duepoint load`` does, beside the same loads on other queues."""
