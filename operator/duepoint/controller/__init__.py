"""Schedule objects -> the queue, and what happened -> their status."""
