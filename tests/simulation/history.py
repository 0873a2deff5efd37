"""One history: an installation, some Schedules, what befalls them, and what came of it.

``run`` plays a ``Story`` under a seed and returns the ``Record``: what the API server created, what
the receivers saw, what the streams hold, and what users did. Nothing that the product says about
itself is in it, apart from the statuses at the end, which are judged, not believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from duepoint import agreedclock, app, services, settings
from duepoint import clock as clocks
from duepoint.controller.watching import directwatch
from duepoint.kube import port, schedules
from tests.simulation import chance, faults, receiver
from tests.simulation.cluster import NAMESPACE, SYSTEM_NAMESPACE, Cluster, MadeJob, Session
from tests.simulation.faults import Event, Kind
from tests.simulation.loop import Process, SimulatedLoop, running_process
from tests.simulation.network import Message, Network
from tests.simulation.servers import RedisSide, SimulatedServers
from tests.simulation.valkey import SimulatedValkey
from tests.support import redisserver

_LEASE = port.path("/apis/coordination.k8s.io/v1", SYSTEM_NAMESPACE, "leases", "duepoint-operator")
#: Monotonic clocks do not begin at zero.
BEGIN_US = 1_000_000_000
#: A killed process is started again after so long.
RESTART_SECONDS = 3.0

JOB_TEMPLATE = {
    "spec": {
        "template": {
            "spec": {
                "containers": [{"name": "main", "image": "example.com/report:1"}],
                "restartPolicy": "Never",
            }
        }
    }
}
TARGETS = ("job", "webhook", "stream")


def target_of(planned: Planned) -> Mapping[str, Any]:
    """The part of its spec that says what is run."""
    match planned.target:
        case "job":
            return {"jobTemplate": JOB_TEMPLATE}
        case "webhook":
            return {"webhook": {"url": receiver.URL}}
        case "stream":
            return {"stream": {"name": _stream_of(planned.name)}}
    raise ValueError(planned.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A Schedule of a story.

    Attributes:
        target: one of ``TARGETS``.
        timing: fields of the spec; an instant is written ``+20s``, after the begin.
    """

    name: str
    target: str
    timing: Mapping[str, Any]
    apply_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is played.

    Attributes:
        seconds: how long, after the begin.
        calm_seconds: events of later messages do not happen.
        job_seconds: how long each Job runs.
        answers: number of a request to the receiver -> status.
    """

    schedules: Sequence[Planned]
    seconds: float
    calm_seconds: float = float("inf")
    operators: int = 2
    workers: int = 2
    job_seconds: float = 2.0
    answers: Mapping[int, int] = field(default_factory=dict)
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asked for, from this instant on; ``spec`` None: to be deleted.

    Attributes:
        ready_us: when the status was first seen to have this generation Ready; None = never.
    """

    at_us: int
    uid: str
    generation: int
    spec: Mapping[str, Any] | None
    ready_us: int | None = None


@dataclass(slots=True, kw_only=True)
class Record:
    """What came of a story.

    Attributes:
        wishes: by the name of the Schedule, in order.
        events: when each event happened.
        statuses: by name, at the end.
        exits: when a process ended itself, and which.
        entries: (id, fields) of each stream at the end.
        trace: what happened, a line each.
        messages: what was sent, for choosing where something may happen.
    """

    story: Story
    seed: int
    begin_us: int
    end_us: int
    wishes: dict[str, list[Wish]]
    made: list[MadeJob]
    seen: list[receiver.Seen]
    entries: dict[str, list[tuple[str, dict[str, str]]]]
    events: list[tuple[int, Event]]
    statuses: dict[str, dict[str, Any] | None]
    exits: list[tuple[int, str]]
    failures: list[str]
    trace: list[str]
    messages: list[Message]
    turns: int

    @property
    def digest(self) -> str:
        """Of the whole trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def run(story: Story, seed: int, valkey: SimulatedValkey) -> Record:
    """Play the story; the same seed plays it the same way."""
    loop = SimulatedLoop(seed)
    loop.now_us = BEGIN_US
    try:
        return _History(story, seed, loop, valkey).play()
    finally:
        loop.close()


@functools.cache
def _key_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="duepoint-simulation-"))
    key = folder / "blob-key"
    key.write_bytes(b"k" * 32)
    return key


@functools.cache
def _settings(kind: type[Any], identity: str) -> Any:
    common = {
        "redis_url": "redis://redis:6379/0",
        "blob_key_file": str(_key_file()),
        "namespace": SYSTEM_NAMESPACE,
        "http_port": "0",
        "identity": identity,
    }
    own = {"shards": "1"} if kind is settings.OperatorSettings else {"egress_allow_http": "true"}
    return settings.read(kind, {}, common | own)


class Exited(BaseException):
    """The process that runs has ended itself."""


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
        self._wishes: dict[str, list[Wish]] = {each.name: [] for each in story.schedules}
        self._failures: list[str] = []
        self._exits: list[tuple[int, str]] = []

    def _now_us(self) -> int:
        return chance.BASE_US + self._loop.now_us

    def play(self) -> Record:
        counts = any(event.kind is Kind.FALL_BACK for event in self._story.events)
        with chance.controlled(
            self._seed,
            self._loop,
            lambda *_, **__: SimulatedServers(self._redis),
            self._dialler,
            self._leave,
        ):
            self._valkey.begin(self._now_us, counts=counts)
            return self._loop.run(self._play())

    def _dialler(self, *_: Any, **__: Any) -> receiver.SimulatedDialler:
        return receiver.SimulatedDialler(self._receiver, self._network)

    async def _play(self) -> Record:
        story, loop = self._story, self._loop
        loop.spawn(self._cluster.run_controllers())
        loop.spawn(self._watch_readiness())
        for number in range(story.operators):
            self._start(f"operator{number}")
        for number in range(story.workers):
            self._start(f"worker{number}")
        for planned in story.schedules:
            loop.in_world_at(
                BEGIN_US + round(planned.apply_seconds * 1e6),
                lambda planned=planned: loop.spawn(self._apply(planned)),
            )
        await asyncio.sleep(story.seconds)
        record = await self._recorded()
        self._network.is_over = True
        return record

    async def _recorded(self) -> Record:
        statuses = {}
        for planned in self._story.schedules:
            found = await self._cluster.document(schedules.path(NAMESPACE, planned.name))
            statuses[planned.name] = None if found is None else found.get("status", {})
        return Record(
            story=self._story,
            seed=self._seed,
            begin_us=chance.BASE_US + BEGIN_US,
            end_us=self._now_us(),
            wishes=self._wishes,
            made=list(self._cluster.made),
            seen=list(self._receiver.seen),
            entries=self._entries(),
            events=[(chance.BASE_US + at, event) for at, event in self._network.witnessed],
            statuses=statuses,
            exits=list(self._exits),
            failures=[*self._failures, *self._loop.failures],
            trace=list(self._network.trace),  # closing adds to it
            messages=list(self._network.sent),
            turns=self._loop.turns,
        )

    def _entries(self) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """Of each stream, by its documented name in Redis."""
        found = {}
        for name in sorted(
            {each.name for each in self._story.schedules if each.target == "stream"}
        ):
            (entries,) = self._valkey.look(
                ("XRANGE", f"dp:stream:{NAMESPACE}:{_stream_of(name)}", "-", "+")
            )
            found[name] = [(id_.decode(), _pairs(fields)) for id_, fields in entries]
        return found

    # -- processes -----------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        work = self._operate if name.startswith("operator") else self._work
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
        clock = agreedclock.AgreedClock(clocks.SystemClock())
        async with app.operating(
            _settings(settings.OperatorSettings, name),
            api=self._session(clock),
            clock=clock,
            health=services.Health(),
            watch=directwatch.DirectWatch,
        ) as leading:
            self._ends[name] = leading.cancel
            with contextlib.suppress(asyncio.CancelledError):
                await leading

    async def _work(self, name: str) -> None:
        clock = agreedclock.AgreedClock(clocks.SystemClock())
        async with app.working(
            _settings(settings.WorkerSettings, name),
            api=self._session(clock),
            clock=clock,
            health=services.Health(),
            own_hosts=(),
            audiences=tuple,
        ) as claimer:
            self._ends[name] = claimer.drain
            await claimer.run()

    def _session(self, clock: agreedclock.AgreedClock) -> Session:
        def hear(date: str, asked: float) -> None:
            if clock.wants_api():
                clock.note_api(date, asked=asked)

        return Session(self._cluster, running_process.get(), hear)

    def _leave(self, code: int) -> None:
        """A process ends itself at once."""
        process = running_process.get()
        if not process.is_dead:
            self._network.note(process, f"exits with {code}")
            self._exits.append((self._now_us(), process.name))
            self._kill(process)
        raise Exited

    def _kill(self, process: Process) -> None:
        if process.is_dead:
            return
        self._network.note(process, "is killed")
        self._loop.kill(process)
        self._redis.listeners = [
            each for each in self._redis.listeners if each.process is not process
        ]
        self._restart_later(process.name)

    def _drain(self, name: str) -> None:
        process = self._processes[name]
        if not process.is_dead and name in self._ends:
            self._network.note(name, "gets SIGTERM")
            self._loop.call_soon(self._ends.pop(name), context=self._loop.context_of(process))

    async def _take_over(self) -> None:
        """The leader gets SIGTERM, so another one leads."""
        lease = await self._cluster.document(_LEASE)
        holder = "" if lease is None else str(lease["spec"].get("holderIdentity") or "")
        if (leader := holder.partition("_")[0]) in self._processes:
            self._drain(leader)

    # -- what users do -------------------------------------------------------------------------

    async def _apply(self, planned: Planned) -> None:
        spec = {**target_of(planned), **planned.timing}
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "Schedule",
            "metadata": {"name": planned.name, "namespace": NAMESPACE},
            "spec": spec,
        }
        path = schedules.collection(NAMESPACE)
        answer = msgspec.json.decode(await self._cluster.server.request("POST", path, body))
        self._note_wish(planned.name, answer, spec)

    async def _patch(self, name: str, change: Mapping[str, Any]) -> None:
        path = schedules.path(NAMESPACE, name)
        if await self._cluster.document(path) is None:
            return
        answer = msgspec.json.decode(
            await self._cluster.server.request(
                "PATCH", path, {"spec": change}, content_type=port.MERGE_PATCH
            )
        )
        self._note_wish(name, answer, answer["spec"])

    async def _delete(self, name: str) -> None:
        path = schedules.path(NAMESPACE, name)
        found = await self._cluster.document(path)
        if found is not None:
            await self._cluster.server.request("DELETE", path)
            self._note_wish(name, found, None)

    def _note_wish(
        self, name: str, document: Mapping[str, Any], spec: Mapping[str, Any] | None
    ) -> None:
        metadata = document["metadata"]
        wish = Wish(self._now_us(), metadata["uid"], metadata["generation"], spec)
        self._wishes[name].append(wish)
        self._network.note("user", f"{name}: {'delete' if spec is None else dict(spec)}")

    async def _watch_readiness(self) -> None:
        path = schedules.collection(NAMESPACE)
        async for change in self._cluster.server.watch(path, _Shown, "0"):
            name, status = change.item.metadata.name, change.item.status
            ready = next(
                (one for one in status.get("conditions", ()) if one["type"] == "Ready"), None
            )
            wishes = self._wishes.get(name)
            if not wishes or ready is None:
                continue
            seen = ready.get("observedGeneration", status.get("observedGeneration", 0))
            for place, wish in enumerate(wishes):
                if wish.ready_us is None and wish.generation <= seen and ready["status"] == "True":
                    wishes[place] = dataclasses.replace(wish, ready_us=self._now_us())

    # -- events --------------------------------------------------------------------------------

    def _carry_out(self, event: Event, message: Message) -> None:
        if event.kind in faults.OF_USERS:
            name = event.name or self._story.schedules[0].name
            self._loop.spawn(self._wish(event.kind, name, message.number))
        elif event.kind in faults.OF_SERVERS:
            self._befall_servers(event)
        elif event.kind in faults.OF_PROCESSES:
            self._befall_process(event, message.process)

    async def _wish(self, kind: Kind, name: str, number: int) -> None:
        match kind:
            case Kind.EDIT:
                await self._patch(name, {"payload": f"edited at {number}"})
            case Kind.RETIME:
                await self._patch(name, {"jitter": "1ms"})
            case Kind.SUSPEND:
                await self._patch(name, {"suspend": True})
            case Kind.RESUME:
                await self._patch(name, {"suspend": False})
            case Kind.DELETE:
                await self._delete(name)

    def _befall_servers(self, event: Event) -> None:
        until_us = self._loop.now_us + round(event.amount * 1e6)
        match event.kind:
            case Kind.FLUSH:
                self._valkey.flush()
            case Kind.FALL_BACK:
                lost = self._valkey.fall_back(round(event.amount))
                self._network.note("redis", f"falls back by {lost} commands")
                self._redis.drop_connections()
            case Kind.OUTAGE:
                self._redis.down_until_us = until_us
                self._valkey.restart()
                self._redis.drop_connections()
            case Kind.API_OUTAGE:
                self._cluster.down_until_us = until_us

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


def _stream_of(name: str) -> str:
    """The stream of a Schedule that writes to one."""
    return f"ticks-{name}"


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    texts = [each.decode(errors="replace") for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


class _Shown(msgspec.Struct, frozen=True):
    metadata: port.Metadata
    status: dict[str, Any] = {}


@contextlib.contextmanager
def a_server() -> Iterator[str]:
    """The unix socket of a running Valkey."""
    with tempfile.TemporaryDirectory(prefix="duepoint-valkey-") as folder:
        path = str(Path(folder) / "valkey.sock")
        server = redisserver.RedisServer("valkey", Path(folder), "--unixsocket", path)
        server.start()
        try:
            yield path
        finally:
            server.stop()


@contextlib.contextmanager
def a_valkey() -> Iterator[SimulatedValkey]:
    """A server for many histories."""
    with a_server() as path:
        valkey = SimulatedValkey(path)
        try:
            yield valkey
        finally:
            valkey.close()
