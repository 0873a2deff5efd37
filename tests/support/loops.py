"""A patch of asyncio that closes connections with the event loop of the test that opened them.

asyncio leaves open connections to the garbage collector, which finds them during some later test
and warns there. Warnings are errors, so one test failed for another one's connection. Libraries
(kopf amid its discovery) and tests that interrupt something leave such connections behind.
"""

from __future__ import annotations

import asyncio
from asyncio import selector_events

_close = selector_events.BaseSelectorEventLoop.close

#: An aborted transport lets go of its socket in the loop's next turn, in which the loop may accept
#: another connection, whose transport comes a turn later. Bounded: a client may go on connecting.
_TURNS = 20


def end_connections_with_their_loop() -> None:
    """Patch asyncio in this process."""
    selector_events.BaseSelectorEventLoop.close = _close_connections_and_loop


def _close_connections_and_loop(loop: selector_events.BaseSelectorEventLoop) -> None:
    if not loop.is_closed() and not loop.is_running():
        for _ in range(_TURNS):
            left = [each for each in loop._transports.values() if each._sock is not None]
            if not left:
                break
            # Abort closing ones, too: one with unsent bytes waits for its peer to read them.
            for transport in left:
                transport.abort()
            for _ in range(2):
                loop.run_until_complete(asyncio.sleep(0))
    _close(loop)
