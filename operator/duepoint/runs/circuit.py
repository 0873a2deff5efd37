"""The circuit breaker of one receiver: when deliveries to it stop, and when they may go on.

Closed, calls go through and are counted: by how many have failed in a row, and by how many of the
last minute have (ring of buckets). Open, none goes until ``until_us``; then one worker is given
the probe, whose outcome alone closes the circuit or opens it for twice as long (M. Nygard,
"Release It!"). A success that was under way when it opened changes nothing.

These are the values; ``circuits.lua``, which all workers share, has the rules. A circuit of which
nothing bad is known is None, so that healthy receivers cost nothing. Times are the server's, in
microseconds. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

#: The window is counted in so many buckets; it ends to a bucket.
BUCKETS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRule:
    """When a circuit opens and for how long.

    Attributes:
        most_in_a_row: failures in a row that open it.
        least_calls: calls in the window below which their share of failures says nothing.
        window_us: the window; more than half of its calls failed opens the circuit.
        first_wait_us, most_wait_us: how long it stays open at first, and at most.
        forget_us: a receiver that is not called any more is forgotten after this.
        gone_us: the same for a receiver that is gone, so that a deleted Schedule takes no room.
    """

    most_in_a_row: int = 10
    least_calls: int = 20
    window_us: int = 60_000_000
    first_wait_us: int = 5_000_000
    most_wait_us: int = 60_000_000
    forget_us: int = 3_600_000_000
    gone_us: int = 35 * 86_400_000_000


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one part of the window."""

    number: int
    succeeded: int
    failed: int


class Circuit(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is known of a receiver that failed lately.

    Attributes:
        is_open: whether calls wait.
        in_a_row: failures since the last success; of an open circuit, those that opened it.
        until_us: of an open circuit: no probe before this.
        wait_us: how long it was opened for the last time; 0 = it is closed.
        probe_us: until when the probe is held, and so its name; 0 = not held.
        since_us: when it opened.
        cause: what the newest failure was, in our words; empty where it is not known.
    """

    is_open: bool = False
    in_a_row: int = 0
    until_us: int = 0
    wait_us: int = 0
    probe_us: int = 0
    since_us: int = 0
    buckets: tuple[Bucket, ...] = ()
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What one worker has to say of one receiver, or asks.

    Attributes:
        host: the receiver's name.
        calls: outcomes in their order, in runs: 3 = three successes, -2 = then two failures.
        probe_us: the probe that ``calls`` is the outcome of, 0 = of none. Without an outcome the
            probe is given back.
        ask_us: a probe is asked for, to be held for so long; 0 = none is.
        cause: what the newest failure among ``calls`` was, in words of ours.
    """

    host: str
    calls: tuple[int, ...] = ()
    probe_us: int = 0
    ask_us: int = 0
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneReceiver:
    """A Schedule whose receiver said 410, as of this generation; 0 = it is to be called again."""

    uid: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All that is known of receivers in trouble.

    Attributes:
        version: changes whenever a circuit opens, closes, comes or goes.
        now_us: the server's time at which this was true.
        hosts, gone: None where the version is the one that was known already.
        probes: for each of the news, the probe that was given; 0 = none.
    """

    version: int
    now_us: int
    hosts: dict[str, Circuit] | None = None
    gone: dict[str, int] | None = None
    probes: tuple[int, ...] = ()


def trouble(known: Circuit, rule: CircuitRule) -> str:
    """Why an open circuit is open, in words that stay the same until the cause is another."""
    cause = f", the last: {known.cause}" if known.cause else ""
    if known.in_a_row >= rule.most_in_a_row:
        return f"{known.in_a_row} failures in a row{cause}"
    seconds = rule.window_us // 1_000_000
    return f"more than half of its requests failed within {seconds} s{cause}"
