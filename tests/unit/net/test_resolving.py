"""Names whose server is silent hold up their own namespace's look-ups, and nobody else's."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
import time

import pytest

from duepoint.net import resolving
from tests.support.waiting import eventually


class Silent:
    """Answers at once, but for names that hang until they may go."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host, _port):
        self.asked.append(host)
        if host.startswith("hanging"):
            self.may_go.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return ("192.0.2.7",)

    async def have_begun(self, count: int) -> None:
        """So many look-ups are under way, each in its thread."""

        async def begun() -> bool:
            return len(self.asked) >= count

        await eventually(begun, f"{count} look-ups begin", pause_seconds=0.01)


@pytest.fixture
def silent():
    asked = Silent()
    yield asked
    asked.may_go.set()


@pytest.fixture
async def looking(silent):
    made = resolving.Lookups(silent, threads=8)
    yield made
    silent.may_go.set()
    made.close()


async def test_hanging_names_of_two_namespaces_do_not_delay_a_third(silent, looking):
    hanging = [
        asyncio.create_task(looking.addresses(f"hanging{n}", 80, namespace))
        for namespace in ("hostile", "worse")
        for n in range(32)
    ]
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    assert await looking.addresses("quiet.test", 80, "quiet") == ("192.0.2.7",)
    assert time.monotonic() - begun < 10
    assert len(silent.asked) < 8
    for one in hanging:
        one.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_name_is_given_up_in_time_and_its_thread_counts_until_it_ends(
    silent, looking, monkeypatch
):
    monkeypatch.setattr(resolving, "LOOKUP_SECONDS", 0.05)
    for number in range(6):  # half of the threads are one namespace's
        with pytest.raises(socket.gaierror, match="could not be looked up"):
            await looking.addresses(f"hanging{number}", 80, "hostile")
    await silent.have_begun(4)
    assert len(silent.asked) == 4
    silent.may_go.set()
    monkeypatch.setattr(resolving, "LOOKUP_SECONDS", 30)
    assert await looking.addresses("quiet.test", 80, "hostile") == ("192.0.2.7",)


async def test_the_line_of_one_namespace_is_bounded(looking, monkeypatch):
    monkeypatch.setattr(resolving, "MOST_WAITING", 3)
    hanging = [
        asyncio.create_task(looking.addresses(f"hanging{n}", 80, "hostile")) for n in range(7)
    ]
    await asyncio.sleep(0.05)
    with pytest.raises(socket.gaierror, match="3 other names of namespace hostile"):
        await looking.addresses("hanging7", 80, "hostile")
    for one in hanging:
        one.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


def test_an_address_of_this_machine_is_in_a_network_of_its_pod():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = ipaddress.ip_address(probe.getsockname()[0])
    found = resolving.pod_networks({"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert [one.prefixlen for one in found if own in one] == [24]
    assert resolving.pod_networks({}) == ()
