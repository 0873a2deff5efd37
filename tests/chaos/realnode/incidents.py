"""Incidents in the life of an installation; a run causes each of `INCIDENTS` once, shuffled."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.chaos.realnode.scene import COMPONENTS, NAMESPACE, Scene
from tests.support.realcluster import job, schedule, until, webhook
from tools.devcluster.state import Record
from tools.realnode import machine

FROZEN_SECONDS = 20.0
GROUPS = machine.CGROUPS
IN = f"--namespace={NAMESPACE}"


def roll(scene: Scene, *components: str) -> None:
    scene.cluster("rollout", "restart", IN, *(f"deploy/duepoint-{name}" for name in components))
    scene.cluster.rolled_out(*(f"duepoint-{name}" for name in components))


def kill(scene: Scene, find: Callable[[Scene], dict[str, Any]]) -> None:
    """Kill the process of a Pod; its container restarts in the same Pod."""
    pod = find(scene)
    os.kill(_main_process(pod), signal.SIGKILL)
    name = pod["metadata"]["name"]
    before = _restarts(pod)
    until("it is started again", lambda: _restarts(scene.cluster.get("pod", name, IN)) > before)
    scene.cluster("wait", f"pod/{name}", IN, "--for=condition=Ready", "--timeout=120s")


def freeze(scene: Scene, find: Callable[[Scene], dict[str, Any]]) -> None:
    """Pause the process of a Pod, and let it go on."""
    process = _main_process(find(scene))
    os.kill(process, signal.SIGSTOP)
    time.sleep(FROZEN_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # the kubelet may have ended it
        os.kill(process, signal.SIGCONT)


def a_worker(scene: Scene) -> dict[str, Any]:
    return scene.cluster.pods("worker")[0]


def the_leader(scene: Scene) -> dict[str, Any]:
    lease = scene.cluster.get("lease", "duepoint-operator", IN)
    holder = lease["spec"]["holderIdentity"].rpartition("_")[0]
    return next(one for one in scene.cluster.pods("operator") if one["metadata"]["name"] == holder)


def delete_valkey(scene: Scene) -> None:
    scene.cluster("delete", "pod", "--selector=app=valkey", IN, "--wait=true")
    gone_us = time.time_ns() // 1000

    def members_fire() -> bool:
        lines = scene.received("tail", "-c200000").splitlines()[1:]
        return any(" /member " in line and int(line.split()[0]) > gone_us for line in lines)

    until("the rows are members again", members_fire)


_TO_REDIS = """
import redis, sys
redis.Redis(sys.argv[1], password=sys.argv[2]).execute_command(*sys.argv[3:])
"""


def rotate_password(scene: Scene) -> None:
    """Rotate a password: both work until every Pod has the new one; then cut old connections."""
    old, new = scene.password, f"of-{time.time_ns()}"

    def ask(*command: str) -> None:
        where = ("exec", "deploy/duepoint-worker", IN, "--")
        address = f"valkey.{NAMESPACE}.svc"
        scene.cluster(*where, "python", "-c", _TO_REDIS, address, scene.password, *command)

    ask("ACL", "SETUSER", "default", f">{new}")
    scene.password = new
    scene.cluster.apply(scene.redis_password(), namespace=NAMESPACE)
    _mount_anew(scene)
    for component in COMPONENTS:
        for pod in scene.cluster.pods(component):
            file = (
                pod["metadata"]["name"],
                IN,
                "--",
                "cat",
                "/etc/duepoint/redis-password/password",
            )
            until("it is mounted", lambda file=file: scene.cluster("exec", *file) == new)
    ask("ACL", "SETUSER", "default", f"<{old}")
    for kind in ("normal", "pubsub"):
        ask("CLIENT", "KILL", "TYPE", kind)


_SHOWN = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 8443)))"


def rotate_certificate(scene: Scene) -> None:
    new = scene.certificate()
    scene.cluster.apply(new, namespace=NAMESPACE)
    _mount_anew(scene)
    wanted = new["stringData"]["tls.crt"].strip()
    ask = ("exec", "client", f"--namespace={scene.namespace}", "--", "python", "-c", _SHOWN)
    for pod in scene.cluster.pods("api"):
        address = pod["status"]["podIP"]
        until("it is shown", lambda address=address: scene.cluster(*ask, address).strip() == wanted)


def change_key(scene: Scene) -> None:
    scene.cluster.apply(scene.hook_key("second"), namespace=scene.namespace)
    until("it is sent", lambda: " second" in scene.received("tail", "-c200000"))


def edit_settings(scene: Scene) -> None:
    """Change settings and restart all processes together: they read settings at the start."""
    scene.cluster.apply(scene.settings("debug"), namespace=NAMESPACE)
    roll(scene, *COMPONENTS)


def upgrade(scene: Scene) -> None:
    scene.cluster.apply(scene.settings("info"), namespace=NAMESPACE)
    stamp = f"upgraded={time.time_ns()}"
    scene.install(*(f"--set-string={name}.pod.annotations.{stamp}" for name in COMPONENTS))


def delete_a_namespace(scene: Scene) -> None:
    with scene.cluster.namespace("beside") as beside:
        scene.cluster.apply(
            schedule(
                "long", "@every 1s", jobTemplate=job("sleep 3600"), concurrencyPolicy="Forbid"
            ),
            schedule("nowhere", "@every 1s", webhook=webhook("/nothing-listens")),
            namespace=beside,
        )
        running = ("pods", f"--namespace={beside}", "--field-selector=status.phase=Running")
        until("a container runs", lambda: scene.cluster.items(*running))
    until("it is gone", lambda: beside not in scene.cluster("get", "namespaces"))


def restart_server(scene: Scene, name: str) -> None:
    """End a server of the node, and start it again as before."""
    record = scene.state.read()
    assert record is not None
    (process,) = _servers(record, name)
    proc = Path("/proc", str(process))
    command = proc.joinpath("cmdline").read_text().split("\0")[:-1]
    variables = proc.joinpath("environ").read_text().split("\0")[:-1]
    groups = list(_groups(proc))
    log = proc.joinpath("fd/1").readlink()
    os.kill(process, signal.SIGTERM)
    until("it has ended", lambda: process not in _servers(record, name))
    join = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
    with log.open("ab") as output:
        subprocess.Popen(
            ["sh", "-ec", join, "join", *groups, "--", *machine.enter(record), *command],
            env=dict(one.split("=", 1) for one in variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until("Pods can be entered", lambda: scene.received("wc", "-l"))


def _mount_anew(scene: Scene) -> None:
    """Make the node refresh mounted Secrets now instead of within a minute or two."""
    now = f"benchmarks.duepoint.dev/now={time.time_ns()}"
    for component in COMPONENTS:
        label = f"--selector=app.kubernetes.io/component={component}"
        scene.cluster("annotate", "pods", label, now, "--overwrite", IN)


def _main_process(pod: dict[str, Any]) -> int:
    """Return the pid of its main process on this machine."""
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    found = []
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if container in file.read_text():
                found.append(int(file.parent.name))
    return min(found)


def _servers(record: Record, name: str) -> list[int]:
    """Return the pids on this machine of the node's processes that run this program."""
    inside = Path("/proc", machine.enter(record)[1].partition("=")[2], "ns/pid").readlink()
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = proc.joinpath("cmdline").read_text().partition("\0")[0]
            if Path(program).name == name and proc.joinpath("ns/pid").readlink() == inside:
                found.append(int(proc.name))
    return found


def _groups(proc: Path) -> Iterator[str]:
    for line in proc.joinpath("cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        is_unified = number == "0" and (GROUPS / "unified").exists()
        yield str(GROUPS / ("unified" if is_unified else names.removeprefix("name=")) / path[1:])


def _restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


INCIDENTS: dict[str, Callable[[Scene], None]] = {
    "worker rolled": lambda scene: roll(scene, "worker"),
    "leader killed": lambda scene: kill(scene, the_leader),
    "TLS Secret rotated": rotate_certificate,
    "worker killed": lambda scene: kill(scene, a_worker),
    "kubelet restarted": lambda scene: restart_server(scene, "kubelet"),
    "Redis password rotated": rotate_password,
    "leader frozen": lambda scene: freeze(scene, the_leader),
    "webhook Secret changed": change_key,
    "API rolled": lambda scene: roll(scene, "api"),
    "worker frozen": lambda scene: freeze(scene, a_worker),
    "namespace beside deleted": delete_a_namespace,
    "operator rolled": lambda scene: roll(scene, "operator"),
    "Valkey's Pod deleted": delete_valkey,
    "settings edited, all rolled": edit_settings,
    "kube-apiserver restarted": lambda scene: restart_server(scene, "kube-apiserver"),
    "helm upgrade": upgrade,
}
#: Incidents after which a webhook may be repeated: the page on slots allows that for a lost claim
#: and for a Redis that has lost settlements.
REPEATING = {"worker killed", "worker frozen", "Valkey's Pod deleted"}
KILLING = ("worker killed", "leader killed", "worker frozen", "Valkey's Pod deleted")
