"""What an expression means: its next and previous slots, in words, and its special days."""
