"""Connections end with the event loop of the test that opened them.

asyncio leaves what is still connected to the collector, which finds it during some later test and
warns there; warnings are errors, and so one test failed for another one's connection. Libraries
(kopf in the midst of its discovery) and tests that cut things in the middle leave some behind.
"""

from __future__ import annotations

import asyncio
from asyncio import selector_events

_close = selector_events.BaseSelectorEventLoop.close

#: An aborted transport lets go of its socket in the loop's next turn.
_TURNS = 2


def end_connections_with_their_loop() -> None:
    """From now on, in this process."""
    selector_events.BaseSelectorEventLoop.close = _close_connections_and_loop


def _close_connections_and_loop(loop: selector_events.BaseSelectorEventLoop) -> None:
    if not loop.is_closed() and not loop.is_running():
        # Also those that are closing: what they do in the next turn would never be done.
        left = [each for each in loop._transports.values() if each._sock is not None]
        for transport in left:
            if not transport.is_closing():
                transport.abort()
        if left:
            for _ in range(_TURNS):
                loop.run_until_complete(asyncio.sleep(0))
    _close(loop)
