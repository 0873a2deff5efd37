"""``duepoint load``: submits one-offs to a set, and measures how late their events arrive.

The command itself receives the events: the set's webhook has to point to ``--receive``. It submits
one-offs in bulk, waits until every accepted one has arrived or ``--wait`` is over, deletes the
others, and reports. Lateness is this machine's clock at the arrival minus the due time, so that
clock should agree with the cluster's.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import math
import secrets
import time
from collections.abc import Sequence
from typing import Any

import click

from duepoint import client, errors
from duepoint.cli import apisession, options, output, receiver

_MOST = 1_000_000
#: Time from the submission to the first due time.
_LEAD_US = 2_000_000
_LOOK_SECONDS = 0.2
#: Long, because late one-offs have to run: their lateness is what is measured.
_DEADLINE_SECONDS = 86_400
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise ValueError(f"{errors.quoted(text)}: write HOST:PORT, such as 0.0.0.0:8090")
    return host, int(port)


@click.command("load")
@apisession.of_set
@click.option(
    "--count", default="50", metavar="N", type=click.IntRange(1, _MOST), show_default=True,
    help="How many one-offs.",
)  # fmt: skip
@click.option(
    "--within", "within_us", default="20s", metavar="DURATION",
    type=options.DURATION_US, show_default=True,
    help="Their due times lie within so long, all the same distance apart.",
)  # fmt: skip
@click.option(
    "--wait", "wait_us", default="30s", metavar="DURATION", type=options.DURATION_US,
    show_default=True, help="What has not arrived so long after the last due time is lost.",
)  # fmt: skip
@click.option(
    "--receive", "address", default="127.0.0.1:8090", metavar="HOST:PORT",
    type=options.Converted(_address), show_default=True,
    help="Where to listen for the events: what the set's webhook points to.",
)  # fmt: skip
@options.output_format
@apisession.asking
async def load(
    asked: client.AsyncSetClient,
    *,
    count: int,
    within_us: int,
    wait_us: int,
    address: tuple[str, int],
    form: str,
) -> None:
    """Submit one-offs to SET and measure how late their events come.

    Example: duepoint load probe -n default --count 50 --within 20s
    """
    run = f"load-{secrets.token_hex(4)}"  # ids of two loads never collide
    first_us = time.time_ns() // 1_000 + _LEAD_US
    due_us = [(first_us + number * within_us // count) // 1_000 * 1_000 for number in range(count)]
    ids = [f"{run}-{number:06d}" for number in range(count)]
    arrivals: list[tuple[int, int]] = []  # number and time of each event of this load

    def on_request(request: dict[str, Any]) -> None:
        of, _, number = request["schedule"].rpartition("-")
        if of == run:
            arrivals.append((int(number), (request["arrived"] - _EPOCH) // _MICROSECOND))

    accepted, refused = set[int](), collections.Counter[str]()
    rows = (
        client.MemberRow(
            id=ids[number],
            at=_EPOCH + at_us * _MICROSECOND,
            payload={"n": number},
            starting_deadline_seconds=_DEADLINE_SECONDS,
        )
        for number, at_us in enumerate(due_us)
    )
    async with receiver.receiving(*address, on_request):
        with output.bar("load", count) as advance:
            began, number = time.monotonic(), 0
            async for answer in asked.upsert(rows):
                if answer.error is None:
                    accepted.add(number)
                else:
                    refused[answer.error.code] += 1
                number += 1
            seconds = time.monotonic() - began
            ends_us = due_us[-1] + wait_us
            while len(arrived := dict(arrivals)) < len(accepted):
                if time.time_ns() // 1_000 >= ends_us:
                    break
                advance(len(arrived), f"{len(arrived):,} arrived")
                await asyncio.sleep(_LOOK_SECONDS)
        # What is missing could arrive later at the next receiver on that port.
        lost = accepted - arrived.keys()
        async for _ in asked.delete_many([ids[number] for number in lost]):
            pass
    first_arrivals = dict(reversed(arrivals))
    late_us = sorted(at_us - due_us[number] for number, at_us in first_arrivals.items())
    report = {
        "set": f"{asked.namespace}/{asked.name}",
        "count": count,
        "withinSeconds": within_us / 1e6,
        "accepted": len(accepted),
        "refused": dict(refused),
        "submittedSeconds": round(seconds, 3),
        "arrived": len(arrived),
        "lost": len(lost),
        "doubled": len(arrivals) - len(arrived),
        "early": sum(late < 0 for late in late_us),
        "latenessMs": {
            name: percentile(late_us, share) / 1_000 if late_us else None
            for name, share in _SHARES.items()
        },
    }
    output.show_row(report, form, _cells(report))
    if accepted and not arrived:
        output.complain(
            f"no event arrived at {address[0]}:{address[1]}: does the webhook of {report['set']}"
            " point there, and do the egress rules allow it? kubectl describe scheduleset shows"
            " what went wrong"
        )
    if any(report[name] for name in ("lost", "doubled", "early", "refused")):
        raise click.exceptions.Exit(output.FAILED)


def percentile(ascending: Sequence[int], share: float) -> int:
    """Return the nearest-rank percentile: the least value that covers this share of them all."""
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]


def _cells(report: output.Row) -> output.Cells:
    """Return the report as cells for people."""
    seconds = report["submittedSeconds"]
    rate = report["accepted"] / seconds if seconds else 0.0
    took = f"{output.span(seconds)} ({rate:,.0f}/s)"
    late = (f"{name} {value:,.1f} ms" for name, value in report["latenessMs"].items() if value)
    cells = {
        "submitted": f"{report['accepted']:,} of {report['count']:,} in {took}",
        "refused": ", ".join(f"{code} {count:,}" for code, count in report["refused"].items()),
        "arrived": f"{report['arrived']:,}; lost {report['lost']:,}, doubled"
        f" {report['doubled']:,}, early {report['early']:,}",
        "lateness": "  ".join(late),
    }
    return {name: cell for name, cell in cells.items() if cell}
