"""One Schedule after another, and now and then all of them, brought into the queue."""
