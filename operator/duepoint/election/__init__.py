"""How the leader is chosen: one at a time, by a Lease, for a term with a number."""
