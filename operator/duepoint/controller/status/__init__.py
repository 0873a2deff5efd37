"""The statuses of Schedules: their content, when they are written, and Kubernetes Events."""
