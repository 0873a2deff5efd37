"""What only the leader does: repair, history, backfill; and how the leader is chosen."""
