"""Other queues under the same protocol, on the same server, one after the other."""
