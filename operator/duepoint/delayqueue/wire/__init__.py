"""Sends commands to the servers of the queue and reads replies: connections, nodes, scripts."""
