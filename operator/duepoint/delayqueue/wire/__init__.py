"""How commands reach the servers of the queue, and what comes back: connections, nodes, scripts."""
