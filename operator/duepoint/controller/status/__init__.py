"""What a Schedule's status says, when it is written, and what becomes an Event."""
