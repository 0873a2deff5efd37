"""What people and metrics see of the index, and what they may ask of dead letters."""
