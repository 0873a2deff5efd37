"""The steps of `up` and `down` of a cluster, and how each is undone.

`up` leaves a complete cluster or none: if it is interrupted, it ends what it has started. It leaves
a healthy cluster alone, and first ends the remains of a crashed one. If another program takes a
port between its choice and the server's start, `up` tries again. A stopped cluster keeps its
objects and its Redis data for the next start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import redis

from tools.devcluster import (
    apiserver,
    binaries,
    credentials,
    ports,
    processes,
    programs,
    progress,
    simulation,
)
from tools.devcluster.errors import DevClusterError
from tools.devcluster.processes import Program
from tools.devcluster.state import CURRENT, REAL, SIMULATED, Record, State
from tools.realnode import machine

PORTS = ("valkey", "etcd", "etcd-peer", "kube-apiserver")
ATTEMPTS = 3
READY_SECONDS = 90.0  # 5 s on an idle machine
POLL_SECONDS = 0.05
SERVER_GRACE_SECONDS = 0.5
SAVE_SECONDS = 20.0
#: On a busy machine an API server reports for a moment that its etcd does not answer.
UNREADY_SECONDS = 10.0
LOG_LINES = 12


class PortTakenError(DevClusterError):
    """A server ended because another program has its port."""


def up(state: State, redis_url: str = "") -> Record:
    """Bring up a complete cluster in `state`; its Redis is `redis_url` if that is given."""
    found = binaries.ensure(binaries.CLUSTER)
    with state.exclusive():
        record = state.read()
        if record is not None and suits(state, record, SIMULATED, redis_url):
            return record
        end(state)
        had_data = state.data.exists()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _start(state, found, redis_url)
            except PortTakenError as taken:
                progress.say(f"{taken}\nTrying other ports ({attempt} of {ATTEMPTS})")
                state.ports_file.unlink(missing_ok=True)
            except DevClusterError as error:
                if not had_data:
                    raise
                hint = f"it had the data of the last time; to begin empty, remove {state.data}"
                raise DevClusterError(f"{error}\n{hint}") from error
        raise DevClusterError(f"no free ports after {ATTEMPTS} attempts; see {state.logs}")


def down(state: State, *, keep: bool = True) -> bool:
    """End everything of `state`; return False if nothing was running.

    Args:
        keep: keep its objects and its Redis data for the next start.
    """
    if not state.folder.exists():
        return False
    with state.exclusive():
        record = state.read()
        if record is not None and keep:
            had_applications = end_applications(record)
            _save(record)
            return end(state) or had_applications
        return end(state)


def _save(record: Record) -> None:
    """Make our own Valkey save its data, which it does at no other time."""
    if any(one.name == "valkey" and processes.is_alive(one) for one in record.processes):
        with contextlib.suppress(redis.RedisError):
            redis.Redis.from_url(record.redis_url, socket_timeout=SAVE_SECONDS).save()


def end(state: State) -> bool:
    """End recorded and unrecorded processes, and delete the credentials."""
    record = state.read() or Record()
    running = end_applications(record)
    running |= machine.remove(state)
    # Without applications nothing of value is left, so servers get a moment, not a grace period:
    # an API server takes ten seconds or more to end the watches of clients that are gone.
    servers = [one for one in record.processes if processes.is_alive(one)]
    known = {one.pid for one in servers}
    servers += [one for one in processes.marked(state.folder) if one.pid not in known]
    processes.end(servers, SERVER_GRACE_SECONDS)
    state.record_file.unlink(missing_ok=True)
    state.kubeconfig.unlink(missing_ok=True)
    shutil.rmtree(state.credentials, ignore_errors=True)
    return running or bool(servers)


def end_applications(record: Record) -> bool:
    """End the applications gracefully; return False if there were none."""
    living = [one for one in record.applications if processes.is_alive(one)]
    processes.end(living)
    return bool(living)


def is_healthy(state: State, record: Record) -> bool:
    """Whether every process lives and the API server answers, at once or soon."""
    deadline = time.monotonic() + UNREADY_SECONDS
    while record.complete and all(map(processes.is_alive, record.processes)):
        if record.kind == CURRENT or client(state, record).is_ready():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return False


def suits(state: State, record: Record, kind: str, redis_url: str) -> bool:
    """Whether the cluster is healthy and of the wanted kind; empty `redis_url` = our own Redis."""
    own = any(one.name == "valkey" for one in record.processes)
    same_redis = record.redis_url == redis_url if redis_url else own
    same_kubernetes = kind != SIMULATED or record.kubernetes == binaries.chosen_kubernetes()
    is_asked_for = record.kind == kind and same_redis and same_kubernetes
    return is_asked_for and is_healthy(state, record)


def client(state: State, record: Record) -> apiserver.Client:
    """Return a client that acts as the administrator."""
    keys = machine.inner(state) if record.kind == REAL else state
    authority = credentials.authority(keys)
    return apiserver.Client(record.server, authority, credentials.admin_token(keys))


def _start(state: State, found: dict[str, Path], redis_url: str) -> Record:
    state.prepare()
    for log in state.logs.glob("*.log"):
        log.unlink()
    chosen = ports.choose(PORTS, state.read_ports())
    server = f"https://127.0.0.1:{chosen['kube-apiserver']}"
    credentials.write(state, server)
    startup = Startup(
        state,
        Record(
            kubeconfig=str(state.kubeconfig),
            server=server,
            etcd=f"http://127.0.0.1:{chosen['etcd']}",
            kubernetes=binaries.chosen_kubernetes(),
            redis_url=redis_url or f"redis://127.0.0.1:{chosen['valkey']}/0",
        ),
    )
    try:
        _start_servers(startup, found, chosen, own_redis=not redis_url)
    except BaseException:
        end(state)
        raise
    state.write_ports(chosen)
    return startup.finish()


def _start_servers(
    startup: Startup, found: dict[str, Path], chosen: dict[str, int], *, own_redis: bool
) -> None:
    state = startup.state
    etcd, api_server, rest = programs.control_plane(state, found, chosen)
    if own_redis:
        startup.start(programs.valkey(state, chosen["valkey"]))
    startup.start(etcd)
    startup.wait_until("etcd listens", lambda: listens(chosen["etcd"]))
    startup.start(api_server)
    as_admin = client(state, startup.record)
    startup.wait_until("the API server is ready", as_admin.is_ready)
    simulation.add_node(as_admin)
    for program in rest:
        startup.start(program)
    startup.wait_until("the simulated node is ready", lambda: simulation.is_usable(as_admin))
    if own_redis:
        startup.wait_until("Valkey listens", lambda: listens(chosen["valkey"]))


class Startup:
    """A cluster that is being started; its record is saved at every step."""

    def __init__(self, state: State, record: Record) -> None:
        self.state = state
        self.record = record
        state.write(record)

    def start(self, program: Program) -> None:
        """Start `program`, and save it in the record before anything else happens."""
        running = processes.start(program, self.log(program.name), self.state.folder)
        self._replace(processes=(*self.record.processes, running))

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Poll `holds`; if a server ends or the wait is too long, fail with its log."""
        deadline = time.monotonic() + READY_SECONDS
        while not holds():
            self._raise_for_ended()
            if time.monotonic() > deadline:
                last = self.record.processes[-1].name
                raise DevClusterError(
                    f"waited {READY_SECONDS:.0f} s until {what}, in vain; {self.tail(last)}"
                )
            time.sleep(POLL_SECONDS)
        self._raise_for_ended()

    def finish(self) -> Record:
        self._replace(complete=True)
        return self.record

    def log(self, name: str) -> Path:
        return self.state.logs / f"{name}.log"

    def tail(self, name: str) -> str:
        """Return the last lines of a server's log, for an error message."""
        lines = self.log(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
        return f"the end of {self.log(name)}:\n" + "\n".join(line[:300] for line in lines)

    def _raise_for_ended(self) -> None:
        for running in self.record.processes:
            if not processes.is_alive(running):
                tail = self.tail(running.name)
                taken = "address already in use" in tail.lower()
                error = PortTakenError if taken else DevClusterError
                raise error(f"{running.name} ended while starting; {tail}")

    def _replace(self, **changes: object) -> None:
        self.record = dataclasses.replace(self.record, **changes)  # type: ignore[arg-type]
        self.state.write(self.record)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
