"""Where a firing goes: a Job, a webhook or a stream."""
