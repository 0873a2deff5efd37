"""``duepoint forecast``: how many runs the coming hours bring, and what would even them out."""
