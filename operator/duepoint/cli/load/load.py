"""``duepoint load``: submit one-offs to a set, and measure how late their events come.

The command listens itself, so nothing else is needed: the set's webhook points to ``--receive``.
It plans due times, submits, waits until every accepted one-off has arrived or ``--wait`` is over,
deletes what has not, and reports: text or JSON, and a picture where ``--svg`` asks for one. The
clock of this machine sets due times and notes arrivals; it should agree with the cluster's.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import click

from duepoint import client, errors
from duepoint.cli import apisession, options, output, progress
from duepoint.cli.load import drawing, lateness, plan, receiver, submitting

_MOST = 1_000_000
_LONGEST_US = 86_400_000_000
_PATTERNS = ("even", "random", "at-once")
_SUBMITTERS = ("ahead", "as-due")
_LOOK_SECONDS = 0.2


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise ValueError(f"{errors.quoted(text)}: write HOST:PORT, such as 0.0.0.0:8090")
    return host, int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to submit, and how.

    Attributes:
        lead_us: from now to the first due time; as-due: from each request to its due time.
        wait_us: how long after the last due time an event may come.
    """

    count: int
    within_us: int
    pattern: str
    submit: str
    lead_us: int
    wait_us: int
    payload: object
    seed: int
    receive: tuple[str, int]
    svg: Path | None
    form: str

    def __post_init__(self) -> None:
        if self.within_us > _LONGEST_US:
            raise errors.InvalidSetting("--within", "is more than a day")


_of_load = options.gathered(
    "wanted",
    LoadOptions,
    click.option(
        "--count", default="50", metavar="N", type=options.whole(_MOST), show_default=True,
        help="How many one-offs.",
    ),
    click.option(
        "--within", "within_us", default="20s", metavar="DURATION", type=options.DURATION_US,
        show_default=True, help="Their due times lie within so long.",
    ),
    click.option(
        "--pattern", default="even", metavar="|".join(_PATTERNS),
        type=options.words(*_PATTERNS), show_default=True, help="Where in that time.",
    ),
    click.option(
        "--submit", default="ahead", metavar="|".join(_SUBMITTERS),
        type=options.words(*_SUBMITTERS), show_default=True,
        help="In bulk before they are due, or a request each while time goes by.",
    ),
    click.option(
        "--lead", "lead_us", default="2s", metavar="DURATION", type=options.DURATION_US,
        show_default=True, help="From the submission to the first due time; as-due: to each.",
    ),
    click.option(
        "--wait", "wait_us", default="30s", metavar="DURATION", type=options.DURATION_US,
        show_default=True, help="What has not arrived so long after the last due time is lost.",
    ),
    click.option(
        "--payload", metavar="JSON|@FILE", type=options.PAYLOAD,
        help='Of each; unset: {"n": its number}.',
    ),
    click.option(
        "--seed", default="1", metavar="N", type=options.whole(10**9), show_default=True,
        help="Of --pattern random.",
    ),
    click.option(
        "--receive", default="127.0.0.1:8090", metavar="HOST:PORT",
        type=options.Converted(_address), show_default=True,
        help="Where to listen for the events: what the set's webhook points to.",
    ),
    click.option(
        "--svg", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
        help="Also draw a picture.",
    ),
    options.output_format,
)  # fmt: skip


@click.command("load")
@apisession.of_set
@_of_load
@apisession.asking
async def load(asked: client.AsyncSetClient, *, wanted: LoadOptions) -> int:
    """Submit one-offs to SET and measure how late their events come."""
    name = f"{asked.calls.namespace}/{asked.calls.name}"
    run = _Load(asked, wanted)
    host, port = wanted.receive
    async with receiver.listening(host, port, run.arrived, run.foreign):
        with progress.bar("load", wanted.count) as advance:
            try:
                await run.submit(advance)
                await run.wait(advance)
            finally:
                await run.remove_rest()
    report = run.report(name)
    if wanted.svg is not None:
        drawn = drawing.picture(report, run.plan.due_us, run.arrivals.first_us)
        try:
            wanted.svg.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise errors.InvalidSetting("--svg", f"{wanted.svg}: {error.strerror}") from None
    if output.is_data(wanted.form):
        output.write([report.row()], wanted.form)
    else:
        for line in report.lines():
            output.say(line)
    if not report.arrived and report.accepted:
        output.complain(
            f"no event arrived at {host}:{port}: does the webhook of {name} point there, and do the"
            " egress rules allow it? kubectl describe scheduleset shows what went wrong"
        )
    return 0 if report.is_good else output.FAILED


class _Load:
    """One load, from its plan to its report."""

    def __init__(self, asked: client.AsyncSetClient, wanted: LoadOptions) -> None:
        self._asked = asked
        self._wanted = wanted
        first_us = time.time_ns() // 1_000 + wanted.lead_us
        due_us = plan.spread(
            count=wanted.count, first_us=first_us, within_us=wanted.within_us,
            pattern=wanted.pattern, seed=wanted.seed,
        )  # fmt: skip
        self.plan = plan.LoadPlan(
            run=f"load-{secrets.token_hex(4)}", due_us=due_us, payload=wanted.payload
        )
        self.arrivals = lateness.Arrivals(due_us=due_us)
        self._submitted = submitting.Submitted()
        self._changed = asyncio.Event()

    def arrived(self, member: str, now_us: int) -> None:
        """Of the receiver."""
        number = self.plan.number_of(member)
        if number is None:
            self.foreign()
            return
        self.arrivals.add(number, now_us)
        self._changed.set()

    def foreign(self) -> None:
        """A request that is no event of ours."""
        self.arrivals.foreign += 1

    async def submit(self, advance: progress.Advance) -> None:
        if self._wanted.submit == "ahead":
            await submitting.ahead(self._asked, self.plan, self._submitted, advance)
            return
        await submitting.as_due(
            self._asked, self.plan, self._submitted, advance, delay_us=self._wanted.lead_us
        )

    async def wait(self, advance: progress.Advance) -> None:
        """Until all that was accepted has arrived, or has had its time."""
        until_us = self.plan.due_us[-1] + self._wanted.wait_us
        while left := len(self._submitted.accepted) - self.arrivals.count:
            left_seconds = (until_us - time.time_ns() // 1_000) / 1e6
            if left < 0 or left_seconds <= 0:
                break
            advance(self.arrivals.count, f"{self.arrivals.count:,} arrived")
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left_seconds, _LOOK_SECONDS)):
                    await self._changed.wait()
            except TimeoutError:
                continue
        advance(self.arrivals.count, f"{self.arrivals.count:,} arrived")

    async def remove_rest(self) -> None:
        """What has not arrived must not arrive later, at the next receiver on that port."""
        late = [n for n in self._submitted.accepted if not self.arrivals.first_us[n]]
        try:
            async for _ in self._asked.delete_many([self.plan.id_of(number) for number in late]):
                pass
        except client.ClientError as error:
            begin = f"duepoint set delete SET --prefix {self.plan.run}-"
            output.complain(f"what is left could not be deleted ({error}); {begin} does it")

    def report(self, name: str) -> lateness.LoadReport:
        accepted, arrivals = self._submitted.accepted, self.arrivals
        return lateness.LoadReport(
            set_name=name,
            count=self._wanted.count,
            within_seconds=self._wanted.within_us / 1e6,
            accepted=len(accepted),
            refused=dict(self._submitted.refused),
            submitted_seconds=self._submitted.seconds,
            accepted_late=self._submitted.late,
            arrived=arrivals.count,
            lost=sum(not arrivals.first_us[number] for number in accepted),
            doubled=len(arrivals.repeated),
            foreign=arrivals.foreign,
            late_us=arrivals.late_us(),
        )
