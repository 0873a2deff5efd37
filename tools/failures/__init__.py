"""What may go wrong, what happens then, and the tests that show it."""
