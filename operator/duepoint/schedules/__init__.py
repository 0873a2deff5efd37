"""What the user asked for: specs, their stored definitions, due points, policies, conditions."""
