"""The first process of a machine: sets up its private parts, the servers, and access from outside.

Arguments: the folder of the cluster, the port of the API server, and a socket that listens at that
port of the host. Everything outside the folder is mounted read-only, so that a server that writes
elsewhere fails here instead of leaving files behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import State
from tools.realnode import machine, servers

#: Settings of the whole kernel that a kubelet writes; it writes into files of ours instead.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
CHUNK_BYTES = 1 << 16


def main() -> int:
    folder, port, descriptor = sys.argv[1:]
    state = State(Path(folder))
    mount_all(machine.inner(state).folder)
    join_network()
    server = os.fork()
    if not server:
        serve(state, int(port), int(descriptor))
    os.close(int(descriptor))
    while True:  # the end of a container's shim is seen here, too
        ended, status = os.wait()
        if ended == server:
            return os.waitstatus_to_exitcode(status)


def serve(state: State, port: int, descriptor: int) -> NoReturn:
    """Start all servers, then forward connections from the host to the API server."""
    try:
        servers.start(machine.inner(state), port, machine.Parts.read(machine.parts_file(state)))
    except DevClusterError as error:
        sys.exit(f"error: {error}")
    machine.ready_file(state).touch()
    with socket.socket(fileno=descriptor) as listener:
        asyncio.run(serve_way_in(listener, port))
    sys.exit()


def mount_all(folder: Path) -> None:
    _mount("--bind", folder, folder)
    _mount_cgroups()
    _mount("-o", "remount,bind,ro", "/")
    for name in ("/run", "/var/log", "/var/lib"):
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", name)
    Path("/run/lock").mkdir()
    # Sockets are in it, whose paths may not be long.
    kubelet = folder / "kubelet"
    for path in (kubelet, servers.KUBELET):
        path.mkdir()
    _mount("--bind", kubelet, servers.KUBELET)
    for name in SYSCTLS:
        own = folder / name.replace("/", ".")
        own.write_text(Path("/proc/sys", name).read_text())
        _mount("--bind", own, f"/proc/sys/{name}")
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{servers.ADDRESS} {servers.NODE}\n")
    _mount("--bind", hosts, "/etc/hosts")
    _mount("--make-rshared", "/")  # volumes are mounted by the kubelet and seen by containers


def _mount_cgroups() -> None:
    """Mount the cgroup hierarchies again, so that our own group is their root."""
    root = machine.CGROUPS
    hierarchies = [line.split(":")[1] for line in Path("/proc/self/cgroup").read_text().split()]
    is_version_2 = (root / "cgroup.controllers").exists()
    subprocess.run(["umount", "--recursive", root], check=True)
    _mount("-t", "sysfs", "sysfs", "/sys")  # that of the new network
    if is_version_2:
        _mount("-t", "cgroup2", "cgroup2", root)
        # A group with processes of its own may not hand controllers on.
        (root / "first").mkdir()
        (root / "first" / "cgroup.procs").write_text("1")
        controllers = (root / "cgroup.controllers").read_text().split()
        (root / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in controllers))
        return
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root)
    for names in filter(None, hierarchies):
        where = root / names.removeprefix("name=")
        where.mkdir()
        _mount("-t", "cgroup", "-o", f"none,{names}" if "=" in names else names, "cgroup", where)


def join_network() -> None:
    """Give the node's address to a bridge: not every kernel has other kinds of interfaces.

    The default route leads nowhere; kubelet, kube-proxy and masquerading want one.
    """
    for command in (
        "link set lo up",
        "link add node0 type bridge",
        f"address add {servers.ADDRESS}/32 dev node0",
        "link set node0 up",
        "route add default dev node0",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    with contextlib.suppress(OSError):  # policies between Pods of one node need it
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")
    subprocess.run(["hostname", servers.NODE], check=True)


async def serve_way_in(listener: socket.socket, port: int) -> None:
    """Forward connections to the host's loopback address to the API server in here."""

    async def connected(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            server, requests = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(client, requests), _copy(server, answers))

    async with await asyncio.start_server(connected, sock=listener) as server:
        await server.serve_forever()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
    target.close()


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
