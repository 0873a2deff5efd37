"""From a due point to its end: alarms, claims, admission, settlement."""
