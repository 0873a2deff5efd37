"""A quiet namespace beside two hostile ones: is it as punctual as alone, and at what memory?

The quiet namespace has webhooks and stream entries every second and Jobs every five, first alone,
then beside the hostile ones, in one run. Those have 256 receivers that hang, 32 names whose server
never answers, 150 templates of 250 KB, 300 objects of 1 MiB and a flood of slots in one second of
each minute. Slots are counted from arrivals: requests at the receiver, which has many names and
closes each connection, so that each delivery is a look-up and a connection of its own; entries
by their ids; Jobs as a watch shows them. Each second of a window must have exactly one of each.

The worker has mounts of its own (``unshare``), with a resolver that is silent and the quiet names
in its hosts file: so the product resolves as it always does, through the system.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import receivers, report, scene
from benchmarks.report import Figure
from duepoint import services
from duepoint.kube import jobbuilder, jobs, schedules
from tests.e2e.test_firing import slot_us
from tests.e2e.test_jobs import endless
from tests.support.stack import JOBS, Stack

BENCH = report.Bench("tenants")
SECONDS = int(report.number("SECONDS", 120, 20))
#: The hostile load is divided by this.
_SHARE = int(report.number("SHARE", 1, 10))
HANGING_HOSTS = 256 // _SHARE
HANGING_NAMES = 32 // _SHARE
LARGE_TEMPLATES = 150 // _SHARE
LARGE_OBJECTS = 300 // _SHARE
FLOOD = 1_000 // _SHARE
#: A template is refused above 256 KiB; an object is what etcd takes.
TEMPLATE_BYTES = 245_000
OBJECT_BYTES = 2**20
#: Of the quiet namespace.
WEBHOOKS, STREAMS, JOB_SCHEDULES = 10, 5, 5
JOB_PERIOD = 5
#: After so long the product has met every hostile load.
_SETTLING_SECONDS = 30
_STARTING_SECONDS = 5
_CREATE_SECONDS = 60.0
#: A slot that has not arrived this long after its window is lost.
_GRACE_SECONDS = 15
LIMIT_MB = 400
_SILENT = "127.0.0.9"
#: Where port 53 may not be opened here: an address that never answers (RFC 5737).
_NOWHERE = "192.0.2.1"

Late = dict[str, dict[tuple[str, int], list[float]]]
"""Milliseconds by kind, and by Schedule and slot in seconds."""


async def run() -> list[Figure]:
    async with (
        scene.stack() as stack,
        receivers.started("closes") as receiver,
        _hanging() as port,
        _Watching.of_jobs(stack) as jobs_seen,
        _bare_requests(stack) as bare,
    ):
        hostile = [stack.plane.create_namespace("hostile") for _ in range(2)]
        try:
            await asyncio.to_thread(stack.install_roles, *hostile)
            watched = ",".join((stack.namespace, *hostile))
            operator = stack.operator(watch_namespaces=watched)
            worker = stack.worker(
                watch_namespaces=watched,
                egress_allowed_cidrs=",".join(f"{one}/32" for one in ("127.0.0.1", *_addresses())),
                prefix=_resolving(stack.folder),
            )
            await asyncio.gather(*(one.wait_until_ready() for one in (operator, worker)))
            await _be_quiet(stack, receiver.port)
            stolen = scene.Stolen()
            report.say(f"the quiet namespace alone for {SECONDS} s")
            alone = await _window()
            report.say("two hostile namespaces begin")
            await _be_hostile(stack, hostile, port)
            report.say(f"the quiet namespace beside them, operator restarted, for {SECONDS} s")
            most = {"operator": scene.megabytes(operator.pid, "VmHWM")}
            await operator.drain()
            operator.start()
            await operator.wait_until_ready()
            await asyncio.sleep(_SETTLING_SECONDS)
            beside = await _window()
            stolen_percent = stolen.percent()
            await asyncio.sleep(_GRACE_SECONDS)
            most["operator"] = max(most["operator"], scene.megabytes(operator.pid, "VmHWM"))
            most["worker"] = scene.megabytes(worker.pid, "VmHWM")
            arrived = await receiver.stop()
            late: Late = {
                "webhooks": _by_slot(
                    (one.schedule, slot_us(one.slot) // 1_000_000, one.arrived_us)
                    for one in arrived
                ),
                "streams": _by_slot(_entries(stack)),
                "Jobs": _by_slot(jobs_seen.seen),
            }
        finally:
            for namespace in hostile:
                stack.plane.discard_namespace(namespace)
    bare_figures = (
        BENCH.share(f"bare requests {name}", 0.99, [bare[at] for at in window if at in bare])
        for name, window in (("alone", alone), ("beside", beside))
    )
    return [*_figures(late, alone, beside), *bare_figures, *_rest(most, stolen_percent)]


async def _window() -> range:
    """Wait for the length of a window; return its whole seconds, whose slots have passed."""
    first = int(time.time()) + 1
    await asyncio.sleep(first + SECONDS - time.time())
    return range(first, first + SECONDS)


# -- the quiet namespace ---------------------------------------------------------------------------


async def _be_quiet(stack: Stack, port: int) -> None:
    names = []
    for number in range(WEBHOOKS):
        webhook = {"url": f"http://q{number}.quiet.test:{port}/"}
        names.append(await _apply_quiet(stack, f"webhook-{number}", "@every 1s", webhook=webhook))
    for number in range(STREAMS):
        stream = {"name": f"quiet-{number}", "maxLength": 100_000}
        names.append(await _apply_quiet(stack, f"stream-{number}", "@every 1s", stream=stream))
    for number in range(JOB_SCHEDULES):
        fields = {"jobTemplate": endless(), "concurrencyPolicy": "Allow"}
        names.append(await _apply_quiet(stack, f"job-{number}", f"@every {JOB_PERIOD}s", **fields))
    await asyncio.gather(*(stack.wait_until_ready(name) for name in names))
    await asyncio.sleep(_STARTING_SECONDS)


async def _apply_quiet(stack: Stack, name: str, schedule: str, **target: Any) -> str:
    await stack.apply(name, {"schedule": schedule, "catchUpPolicy": "All", **target})
    return name


def _entries(stack: Stack) -> Iterator[tuple[str, int, int]]:
    with stack.redis.client() as client:
        for number in range(STREAMS):
            found: Any = client.xrange(f"dp:stream:{stack.namespace}:quiet-{number}")
            for key, fields in found:
                at_us = int(key.partition(b"-")[0]) * 1000
                yield f"stream-{number}", int(fields[b"slot"]), at_us


class _Watching:
    """Notes Jobs of the quiet namespace as they appear."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def of_jobs(cls, stack: Stack) -> AsyncIterator[_Watching]:
        watching = cls()
        async with services.beside(watching._watch(stack)):
            yield watching

    async def _watch(self, stack: Stack) -> None:
        path = JOBS.format(ns=stack.namespace)
        async for change in stack.api.watch(path, jobs.Job, "0"):
            metadata = change.item.metadata
            slot = (metadata.annotations or {}).get(jobbuilder.SCHEDULED_TIME)
            if change.type == "ADDED" and slot is not None:
                schedule = (metadata.labels or {}).get(jobbuilder.SCHEDULE_LABEL, "")
                now_us = time.time_ns() // 1000
                self.seen.append((schedule, slot_us(slot) // 1_000_000, now_us))


@contextlib.asynccontextmanager
async def _bare_requests(stack: Stack) -> AsyncIterator[dict[int, float]]:
    """Create a ConfigMap each second; yield the ms that each took, a lower bound for a Job."""
    took: dict[int, float] = {}
    path = f"/api/v1/namespaces/{stack.namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "bare-"}}

    async def ask() -> None:
        while True:
            await asyncio.sleep(1 - time.time() % 1)
            begun = time.time()
            await stack.api.request("POST", path, body)
            took[int(begun)] = (time.time() - begun) * 1000

    async with services.beside(ask()):
        yield took


# -- the hostile namespaces ------------------------------------------------------------------------


async def _be_hostile(stack: Stack, namespaces: list[str], port: int) -> None:
    """Create all objects of the hostile namespaces, the large ones last."""

    def here(number: int) -> str:
        return namespaces[number % len(namespaces)]

    async def hang(number: int) -> None:
        url = f"http://{_address(number)}:{port}/"
        await _apply_hostile(stack, f"host-{number}", here(number), "@every 10s", url)

    async def ask(number: int) -> None:
        url = f"http://n{number}.hanging.test:{port}/"
        await _apply_hostile(stack, f"name-{number}", here(number), "@every 5s", url)

    async def make(number: int) -> None:
        spec = {"schedule": "@every 60s", "jobTemplate": _large_template(number, TEMPLATE_BYTES, 9)}
        await _create(stack, f"large-{number}", namespaces[0], spec)

    async def flood(number: int) -> None:
        target = {"stream": {"name": "flood", "maxLength": 1000}}
        await stack.apply(f"flood-{number}", {"schedule": "* * * * *", **target}, here(number))

    async def fill(number: int) -> None:
        spec = {
            "schedule": "0 0 1 1 *",
            "jobTemplate": _large_template(number, OBJECT_BYTES, 1_000),
        }
        await _create(stack, f"object-{number}", namespaces[1], spec)

    await _each(hang, HANGING_HOSTS)
    await _each(ask, HANGING_NAMES)
    await _each(flood, FLOOD)
    await _each(make, LARGE_TEMPLATES)
    await _each(fill, LARGE_OBJECTS)


async def _apply_hostile(stack: Stack, name: str, where: str, schedule: str, url: str) -> None:
    await stack.apply(name, {"schedule": schedule, "webhook": {"url": url}}, where)


async def _create(stack: Stack, name: str, where: str, spec: dict[str, Any]) -> None:
    """Create a Schedule by POST: it is cheaper than an apply, which compares every field."""
    begun = time.monotonic()
    body = {
        "apiVersion": schedules.API_VERSION,
        "kind": schedules.KIND,
        "metadata": {"name": name, "namespace": where},
        "spec": spec,
    }
    path = schedules.collection(where)
    await stack.api.request("POST", path, body, timeout_seconds=_CREATE_SECONDS)
    if (seconds := time.monotonic() - begun) > 5:
        report.say(f"{name} took {seconds:.1f} s to create")


def _large_template(number: int, size: int, part: int) -> dict[str, Any]:
    """Return a large, unique template of parts; small parts take the most memory for their text."""
    made = endless()
    container = made["spec"]["template"]["spec"]["containers"][0]
    first = number * 1_000_000
    # A list that is merged as one: for others the API server also stores who manages which part.
    count = size // (part + 3)
    container["args"] = [f"{first + index:0{part}}" for index in range(count)]
    return made


async def _each(make: Callable[[int], Awaitable[None]], count: int) -> None:
    gate = asyncio.Semaphore(4)

    async def one(number: int) -> None:
        async with gate:
            await make(number)

    await asyncio.gather(*(one(number) for number in range(count)))


def _address(number: int) -> str:
    return f"127.1.{number // 250}.{number % 250 + 1}"


def _addresses() -> Iterator[str]:
    return (_address(number) for number in range(HANGING_HOSTS))


@contextlib.asynccontextmanager
async def _hanging() -> AsyncIterator[int]:
    """Run a receiver on all addresses of this machine that never answers a request."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65_536):
                pass
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(take, "0.0.0.0", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _resolving(folder: Path) -> list[str]:
    """Return a command prefix with mounts of its own, where a silent server resolves names."""
    hosts = "".join(f"127.0.0.1 q{number}.quiet.test\n" for number in range(WEBHOOKS))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
    (folder / "resolv.conf").write_text(f"nameserver {_silent_server()}\n")
    binds = " && ".join(
        f"mount --bind {folder / name} /etc/{name}" for name in ("hosts", "resolv.conf")
    )
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh"]


_listening: list[socket.socket] = []


def _silent_server() -> str:
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        silent.bind((_SILENT, 53))
    except OSError:
        silent.close()
        return _NOWHERE
    _listening.append(silent)  # open until this process ends; it is not read
    return _SILENT


# -- figures ---------------------------------------------------------------------------------------


def _by_slot(seen: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
    for schedule, slot, at_us in seen:
        found[schedule, slot].append(at_us / 1000 - slot * 1000)
    return found


def _expected(kind: str, window: range, seen: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the expected deliveries; a Job's slots depend on when its Schedule was created."""
    if kind == "webhooks":
        return {(f"webhook-{n}", second) for n in range(WEBHOOKS) for second in window}
    if kind == "streams":
        return {(f"stream-{n}", second) for n in range(STREAMS) for second in window}
    phases = {schedule: slot % JOB_PERIOD for schedule, slot in seen}
    names = [f"job-{number}" for number in range(JOB_SCHEDULES)]
    return {
        (name, second)
        for name in names
        for second in window
        if second % JOB_PERIOD == phases.get(name, 0)
    }


def _figures(late: Late, alone: range, beside: range) -> Iterator[Figure]:
    lost = doubled = 0
    for kind, seen in late.items():
        p99 = {}
        for name, window in (("alone", alone), ("beside", beside)):
            expected = _expected(kind, window, seen)
            lost += len(expected - seen.keys())
            arrived = [seen[slot] for slot in expected & seen.keys()]
            doubled += sum(len(one) - 1 for one in arrived)
            values = [min(one) for one in arrived]
            p99[name] = report.percentile(values, 0.99)
            for share in (0.5, 0.99):
                yield BENCH.share(f"lateness of quiet {kind} {name}", share, values)
        figure = f"p99 lateness of quiet {kind} beside hostile namespaces, of that alone"
        yield BENCH.one(figure, round(p99["beside"] / p99["alone"], 3), "ratio", "<= 2")
    yield BENCH.one("quiet slots lost", lost, "slots", "= 0")
    yield BENCH.one("quiet slots doubled", doubled, "slots", "= 0")


def _rest(most: Mapping[str, float], stolen_percent: float) -> Iterator[Figure]:
    for role, megabytes in most.items():
        yield BENCH.one(f"{role}'s greatest memory", round(megabytes), "MB", f"<= {LIMIT_MB}")
    yield BENCH.one("processor time that the host gave to others", round(stolen_percent, 1), "%")
