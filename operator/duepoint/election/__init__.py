"""Leader election: one leader at a time, by a Lease, for a term with a number."""
