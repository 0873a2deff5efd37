"""One history: an installation, its Schedules, the events that hit them, and the outcome.

``run`` plays a ``Story`` under a seed and returns the ``Record``: what the API server created, what
the receivers saw, what the streams contain, and what users did. The record contains no claim of the
product about itself except the final statuses, and the judge checks those.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duepoint import app, comparedclock, errors, services, settings
from duepoint import clock as clocks
from duepoint.controller.watching import directwatch
from duepoint.kube import port, schedules
from tests.simulation import apiclient, chance, faults, receiver
from tests.simulation.cluster import NAMESPACE, SYSTEM_NAMESPACE, Cluster, MadeJob, Session
from tests.simulation.faults import Event, Kind
from tests.simulation.loop import Process, SimulatedLoop, running_process
from tests.simulation.network import Message, Network
from tests.simulation.plans import BEGIN_US, ManualRun, Story, Wish, stream_of
from tests.simulation.servers import RedisSide, SimulatedServers
from tests.simulation.users import Users
from tests.support.virtualvalkey import SimulatedValkey

_LEASE = port.path("/apis/coordination.k8s.io/v1", SYSTEM_NAMESPACE, "leases", "duepoint-operator")
#: A killed process is started again after this time.
RESTART_SECONDS = 3.0
#: The number of API processes in a story that has members of sets.
API_PROCESSES = 2
#: Processes get a new key one after the other, this far apart.
ROLLING_SECONDS = 4.0
#: A clock that was set wrong is right again after this time.
WRONG_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Record:
    """The outcome of a story.

    Attributes:
        wishes: in order, by the name of the Schedule, set or member.
        runs: ScheduleRuns that were created.
        events: when each event happened.
        statuses: final statuses by name, those of ScheduleRuns included.
        members: what the HTTP API listed at the end, by the name of the set; None = no answer.
        exits: when a process ended itself, and which one.
        entries: (id, fields) of each stream at the end.
        trace: a line for each thing that happened.
        messages: every message sent, from which a test chooses where to inject an event.
    """

    story: Story
    seed: int
    begin_us: int
    end_us: int
    wishes: dict[str, list[Wish]]
    runs: list[ManualRun]
    made: list[MadeJob]
    seen: list[receiver.Seen]
    entries: dict[str, list[tuple[str, dict[str, str]]]]
    events: list[tuple[int, Event]]
    statuses: dict[str, dict[str, Any] | None]
    members: dict[str, dict[str, Any] | None]
    exits: list[tuple[int, str]]
    failures: list[str]
    trace: list[str]
    messages: list[Message]
    turns: int

    @property
    def digest(self) -> str:
        """Return a digest of the whole trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def run(story: Story, seed: int, valkey: SimulatedValkey) -> Record:
    """Play the story; the same seed always plays it the same way."""
    loop = SimulatedLoop(seed)
    loop.now_us = BEGIN_US
    try:
        return _History(story, seed, loop, valkey).play()
    finally:
        valkey.forget_clock()
        loop.close()


@functools.cache
def _key_file(number: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="duepoint-simulation-"))
    key = folder / "blob-key"
    key.write_bytes(bytes([number]) * 32)
    return key


_OWN_SETTINGS: dict[type[Any], dict[str, str]] = {
    settings.OperatorSettings: {"shards": "1", "own_stream_bytes_per_namespace": str(200 << 23)},
    settings.WorkerSettings: {"webhook_insecure": "http"},
    settings.ApiSettings: {"tls_cert_file": "none"},
}


@functools.cache
def _settings(kind: type[Any], identity: str, key: int) -> Any:
    common = {
        "redis_url": "redis://redis:6379/0",
        "blob_key_file": str(_key_file(key)),
        "namespace": SYSTEM_NAMESPACE,
        "http_port": "0",
        "identity": identity,
    }
    return settings.read(kind, {}, common | _OWN_SETTINGS[kind])


class Exited(BaseException):
    """The running process has ended itself."""


class _History:
    def __init__(
        self, story: Story, seed: int, loop: SimulatedLoop, valkey: SimulatedValkey
    ) -> None:
        self._story = story
        self._seed = seed
        self._loop = loop
        self._valkey = valkey
        self._network = Network(
            loop, seed, story.events, self._carry_out, until_us=story.calm_seconds * 1e6 + BEGIN_US
        )
        self._redis = RedisSide(valkey, self._network)
        self._cluster = Cluster(self._network, self._now_us, job_seconds=story.job_seconds)
        self._receiver = receiver.Receiver(self._network, self._now_us)
        self._receiver.answers.update(story.answers)
        self._processes: dict[str, Process] = {}
        self._ends: dict[str, Callable[[], object]] = {}
        self._client = apiclient.ApiClient(self._network)
        self._users = Users(story, self._cluster, self._client)
        self._key = 1
        self._failures: list[str] = []
        self._exits: list[tuple[int, str]] = []

    def _now_us(self) -> int:
        return chance.BASE_US + self._loop.now_us

    def play(self) -> Record:
        chance.bugs.clear()
        with chance.controlled(
            self._seed,
            self._loop,
            lambda *_, **__: SimulatedServers(self._redis),
            self._dialler,
            self._leave,
        ):
            self._valkey.begin(self._now_us, counts=self._may_fall_back())
            return self._loop.run(self._play())

    def _may_fall_back(self) -> bool:
        """Whether Redis is still going to fall back to an older state."""
        planned = sum(event.kind is Kind.FALL_BACK for event in self._story.events)
        past = sum(event.kind is Kind.FALL_BACK for _, event in self._network.witnessed)
        return past < planned

    def _dialler(self, *_: Any, **__: Any) -> receiver.SimulatedDialler:
        return receiver.SimulatedDialler(self._receiver, self._network)

    async def _play(self) -> Record:
        story, loop = self._story, self._loop
        loop.spawn(self._cluster.run_controllers())
        for number in range(story.operators):
            self._start(f"operator{number}")
        for number in range(story.workers):
            self._start(f"worker{number}")
        if story.sets:
            self._client.begin()
            for number in range(API_PROCESSES):
                self._start(f"api{number}")
        self._users.begin()
        await self._until_the_end()
        record = await self._recorded()
        self._network.is_over = True
        return record

    async def _until_the_end(self) -> None:
        """Wait as long after the last event as a story goes on after the last possible one."""
        story = self._story
        await asyncio.sleep(min(story.seconds, story.calm_seconds))
        if story.seconds > story.calm_seconds:
            last_us = max((at_us for at_us, _ in self._network.witnessed), default=BEGIN_US)
            end_us = last_us + (story.seconds - story.calm_seconds) * 1e6
            await asyncio.sleep(max(0.0, (end_us - self._loop.now_us) / 1e6))

    async def _recorded(self) -> Record:
        statuses = {
            name: await self._status(name, schedules.PLURAL)
            for name in self._users.wishes
            if "/" not in name and name not in self._story.sets
        }
        for name in self._story.sets:
            statuses[name] = await self._status(name, schedules.SET_PLURAL)
        for run in self._users.runs:
            statuses[run.name] = await self._status(run.name, schedules.RUN_PLURAL)
        members = {name: await self._client.listed(name) for name in self._story.sets}
        return Record(
            story=self._story,
            seed=self._seed,
            begin_us=chance.BASE_US + BEGIN_US,
            end_us=self._now_us(),
            wishes=self._users.wishes,
            runs=self._users.runs,
            made=list(self._cluster.made),
            seen=list(self._receiver.seen),
            entries=self._entries(),
            events=[(chance.BASE_US + at, event) for at, event in self._network.witnessed],
            statuses=statuses,
            members=members,
            exits=list(self._exits),
            failures=[*self._failures, *self._client.refusals, *self._loop.failures, *chance.bugs],
            trace=list(self._network.trace),  # closing adds to it
            messages=list(self._network.sent),
            turns=self._loop.turns,
        )

    async def _status(self, name: str, plural: str) -> dict[str, Any] | None:
        found = await self._cluster.document(schedules.path(NAMESPACE, name, plural=plural))
        return None if found is None else found.get("status", {})

    def _entries(self) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """Return the entries of each stream, by its documented name in Redis."""
        found = {}
        writing = (each for each in self._story.schedules if each.target == "stream")
        for name in sorted({each.set_name or each.name for each in writing}):
            (entries,) = self._valkey.look(
                ("XRANGE", f"dp:stream:{NAMESPACE}:{stream_of(name)}", "-", "+")
            )
            found[name] = [(id_.decode(), _pairs(fields)) for id_, fields in entries]
        return found

    # -- processes -----------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        works = {"operator": self._operate, "worker": self._work, "api": self._serve}
        work = works[name.rstrip("0123456789")]
        self._network.note(name, "starts")
        self._processes[name] = self._loop.start(name, self._watched(name, work(name)))

    async def _watched(self, name: str, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - it is judged
            self._failures.append(f"{name} ended with {error!r}")
        self._network.note(name, "ends")
        self._restart_later(name)

    def _restart_later(self, name: str) -> None:
        at_us = self._loop.now_us + round(RESTART_SECONDS * 1e6)
        self._loop.in_world_at(at_us, self._restart, name)

    def _restart(self, name: str) -> None:
        if not self._network.is_over:
            self._start(name)

    async def _operate(self, name: str) -> None:
        clock = comparedclock.ComparedClock(clocks.SystemClock())
        async with app.operating(
            self._settings(settings.OperatorSettings, name),
            api=self._session(),
            clock=clock,
            health=services.Health(),
            watch=directwatch.watch,
        ) as leading:
            self._ends[name] = leading.cancel
            with contextlib.suppress(asyncio.CancelledError):
                await leading

    async def _work(self, name: str) -> None:
        clock = comparedclock.ComparedClock(clocks.SystemClock())
        async with app.working(
            self._settings(settings.WorkerSettings, name),
            api=self._session(),
            clock=clock,
            health=services.Health(),
            own_hosts=(),
            audiences=tuple,
        ) as claimer:
            self._ends[name] = claimer.drain
            await claimer.run()

    async def _serve(self, name: str) -> None:
        clock = comparedclock.ComparedClock(clocks.SystemClock())
        async with app.answering(
            self._settings(settings.ApiSettings, name),
            api=self._session(),
            clock=clock,
            health=services.Health(),
        ) as handler:
            stop = asyncio.Event()
            self._ends[name] = stop.set
            process = running_process.get()
            self._client.open(process, handler)
            try:
                await stop.wait()
            finally:
                self._client.close(process)

    def _settings(self, kind: type[Any], name: str) -> Any:
        return _settings(kind, name, self._key)

    def _session(self) -> Session:
        return Session(self._cluster, running_process.get())

    def _leave(self, code: int) -> None:
        """End the running process at once, as its own exit does."""
        process = running_process.get()
        if not process.is_dead:
            self._network.note(process, f"exits with {code}")
            self._exits.append((self._now_us(), process.name))
            self._kill(process)
        raise Exited

    def _kill(self, process: Process) -> None:
        if process.is_dead or process.name == apiclient.NAME:  # the client is not product code
            return
        self._network.note(process, "is killed")
        self._loop.kill(process)
        self._redis.listeners = [
            each for each in self._redis.listeners if each.process is not process
        ]
        if process.name in self._processes:  # an event starts the others, and they end with it
            self._restart_later(process.name)

    def _drain(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and not process.is_dead and name in self._ends:
            self._network.note(name, "gets SIGTERM")
            self._loop.call_soon(self._ends.pop(name), context=self._loop.context_of(process))

    async def _take_over(self) -> None:
        """Send SIGTERM to the leader, so that another operator takes over."""
        lease = await self._cluster.document(_LEASE)
        holder = "" if lease is None else str(lease["spec"].get("holderIdentity") or "")
        if (leader := holder.partition("_")[0]) in self._processes:
            self._drain(leader)

    # -- events --------------------------------------------------------------------------------

    def _carry_out(self, event: Event, message: Message) -> None:
        if event.kind in faults.OF_USERS:
            self._users.carry_out(event.kind, event.name, message.number)
        elif event.kind in faults.OF_SERVERS:
            self._befall_servers(event)
        elif event.kind in faults.OF_PROCESSES:
            self._befall_process(event, message.process)

    def _befall_servers(self, event: Event) -> None:
        until_us = self._loop.now_us + round(event.amount * 1e6)
        match event.kind:
            case Kind.FLUSH:
                self._valkey.flush()
            case Kind.FALL_BACK:
                lost = self._valkey.fall_back(round(event.amount))
                self._network.note("redis", f"falls back by {lost} commands")
                self._redis.drop_connections()
                if not self._may_fall_back():
                    self._valkey.stop_counting()
            case Kind.OUTAGE:
                self._redis.down_until_us = until_us
                self._valkey.restart()
                self._redis.drop_connections()
            case Kind.API_OUTAGE:
                self._cluster.down_until_us = until_us
            case Kind.RECEIVER_OUTAGE:
                self._receiver.down_until_us = until_us
            case Kind.SERVER_AHEAD | Kind.SERVER_BEHIND:
                self._valkey.clock_offset_us = _offset_us(event)
                self._in_right_time(lambda: setattr(self._valkey, "clock_offset_us", 0))
            case Kind.NEW_KEY:
                self._key += 1
                for place, name in enumerate(self._processes):
                    at_us = self._loop.now_us + round(ROLLING_SECONDS * 1e6) * place
                    self._loop.in_world_at(at_us, self._drain, name)
            case Kind.PARTITION:
                self._loop.start("partition", self._partition(round(event.amount)))

    def _befall_process(self, event: Event, process: Process) -> None:
        match event.kind:
            case Kind.KILL_BEFORE | Kind.KILL_AFTER:
                self._kill(process)
            case Kind.PAUSE_BEFORE | Kind.PAUSE_AFTER:
                self._loop.pause(process, event.amount)
            case Kind.DRAIN:
                self._drain(process.name)
            case Kind.TAKEOVER:
                self._loop.spawn(self._take_over())
            case Kind.CLOCK_AHEAD | Kind.CLOCK_BEHIND:
                process.clock_offset_us = _offset_us(event)
                self._in_right_time(lambda: setattr(process, "clock_offset_us", 0))

    def _in_right_time(self, mend: Callable[[], None]) -> None:
        self._loop.in_world_at(self._loop.now_us + round(WRONG_SECONDS * 1e6), mend)

    async def _partition(self, shards: int) -> None:
        """Ask for another number of shards until the queue has taken it in."""
        queue = app.open_queue(
            self._settings(settings.OperatorSettings, "partition"), clocks.SystemClock()
        )
        for _ in range(60):
            with contextlib.suppress(errors.TryLater, errors.WorldChanged):
                await queue.resharding.ask(shards)
                break
            await asyncio.sleep(1.0)
        await queue.close()


def _offset_us(event: Event) -> int:
    is_behind = event.kind in (Kind.CLOCK_BEHIND, Kind.SERVER_BEHIND)
    return round(event.amount * 1e6) * (-1 if is_behind else 1)


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    texts = [each.decode(errors="replace") for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
