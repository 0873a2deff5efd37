"""Requests to make a Job that got no answer, and for how long they may be carried out all the same.

The API server goes on with what it has read, whatever has become of its client, until its own time
is over (``--request-timeout``, 60 s unless set otherwise). While the Job exists, its name refuses a
late request; once history has deleted it, nothing does. So whoever deletes a Job asks here. Pure.
"""

from __future__ import annotations

#: The API server's limit, and a margin for a connection that holds back what was sent.
LATE_US = 70_000_000


def may_come(sent_by_us: int, now_us: int) -> bool:
    """Whether a request that was sent by then, 0 = none was, may be carried out after now."""
    return sent_by_us > 0 and now_us < sent_by_us + LATE_US
