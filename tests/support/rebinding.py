"""A machine of its own for a name server that lies: run by ``unshare``, it prints what came of it.

In namespaces of their own (user, network, mounts) this process owns port 53, ``/etc/resolv.conf``
and the addresses themselves: a public one and the metadata service's are on its loopback device,
each with a listener that counts. So the product resolves as it always does, through the system, and
what it should not connect to would answer.

    unshare --map-root-user --mount --net python -m tests.support.rebinding
"""

from __future__ import annotations

import asyncio
import collections
import fcntl
import ipaddress
import json
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from duepoint import telemetry
from tests.support import firings, receiver, webhooktargets

PUBLIC, METADATA, PRIVATE, LOOPBACK = "8.8.8.8", "169.254.169.254", "10.1.2.3", "127.0.0.1"
PORT = 80
_A, _AAAA = 1, 28

#: Name -> what is answered to the first question of a kind, the second, ...; the last for ever.
ANSWERS: dict[tuple[str, int], list[Sequence[str]]] = {
    ("rebinding.test", _A): [[PUBLIC], [LOOPBACK], [METADATA], [PRIVATE]],
    ("mixed.test", _A): [[PUBLIC, LOOPBACK]],
    ("metadata-last.test", _A): [[PUBLIC, METADATA]],
    ("six.test", _A): [[PUBLIC]],
    ("six.test", _AAAA): [["::1"]],
    ("mapped.test", _A): [[PUBLIC]],
    ("mapped.test", _AAAA): [["::ffff:169.254.169.254"]],
}
#: Which name each delivery goes to.
ASKED = [*["rebinding.test"] * 4, "mixed.test", "metadata-last.test", "six.test", "mapped.test"]


class NameServer(asyncio.DatagramProtocol):
    """Answers with a life of nothing.

    Attributes:
        questions: how often each name was asked for an address of the old kind.
    """

    def __init__(self) -> None:
        self.questions: collections.Counter[str] = collections.Counter()
        self._left = {key: list(answers) for key, answers in ANSWERS.items()}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, kind, question = _question(data)
        self.questions[name] += kind == _A
        answers = self._left.get((name, kind), [[]])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        records = b"".join(_record(kind, address) for address in found)
        head = data[:2] + struct.pack("!HHHHH", 0x8580, 1, len(found), 0, 0)
        self._transport.sendto(head + question + records, addr)


def _question(data: bytes) -> tuple[str, int, bytes]:
    labels, at = [], 12
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode())
        at += 1 + size
    (kind,) = struct.unpack_from("!H", data, at + 1)
    return ".".join(labels).lower(), kind, data[12 : at + 5]


def _record(kind: int, address: str) -> bytes:
    packed = ipaddress.ip_address(address).packed
    return struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed


# -- the machine -----------------------------------------------------------------------------------


def _own_network() -> None:
    """Bring the loopback device up, with the addresses as its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, 0x8914, struct.pack("16sh", b"lo", 0x49))  # SIOCSIFFLAGS, UP
        for number, address in enumerate((PUBLIC, METADATA, PRIVATE)):
            alias = struct.pack("16sHH4s8x", f"lo:{number}".encode(), 2, 0, _packed(address))
            fcntl.ioctl(asking, 0x8916, alias)  # SIOCSIFADDR


def _packed(address: str) -> bytes:
    return ipaddress.IPv4Address(address).packed


def _own_names(folder: Path) -> None:
    for name, text in (
        ("resolv.conf", "nameserver 127.0.0.1\n"),
        ("nsswitch.conf", "hosts: dns\n"),
    ):
        ours = folder / name
        ours.write_text(text)
        subprocess.run(["mount", "--bind", str(ours), f"/etc/{name}"], check=True)


async def _results() -> dict[str, object]:
    names = NameServer()
    loop = asyncio.get_running_loop()
    serving, _ = await loop.create_datagram_endpoint(lambda: names, ("127.0.0.1", 53))
    close = receiver.raw(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    outcomes = []
    async with (
        receiver.listening(close, host=PUBLIC, port=PORT) as public,
        receiver.listening(close, host=LOOPBACK, port=PORT) as loopback,
        receiver.listening(close, host="::1", port=PORT) as loopback_six,
        receiver.listening(close, host=METADATA, port=PORT) as metadata,
        receiver.listening(close, host=PRIVATE, port=PORT) as private,
        webhooktargets.a_target(allowed=(), allow_http=True) as (target, _),
    ):
        for number, name in enumerate(ASKED):
            action = firings.a_webhook(f"http://{name}/", timeout_seconds=60)
            firing = firings.a_firing(action, slot_us=number * 1_000_000, seconds_left=60)
            given = await target.fire(firing)
            outcomes.append([name, type(given).__name__, getattr(given, "reason", "")])
        forbidden = (loopback, loopback_six, metadata, private)
        counts = [public.connections, *(one.connections for one in forbidden)]
    serving.close()
    return {"outcomes": outcomes, "connections": counts, "questions": dict(names.questions)}


def _lines() -> Iterator[str]:
    _own_network()
    with tempfile.TemporaryDirectory() as folder:
        _own_names(Path(folder))
        with telemetry.silence():
            yield json.dumps(asyncio.run(_results()))


if __name__ == "__main__":
    sys.stdout.writelines(_lines())
