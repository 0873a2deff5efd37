"""What webhooks cost, and what the trouble of one receiver costs the others."""
