"""The HTTP API of ScheduleSets under load, and the servers that it could stand on."""
