"""Manifests are written to the API server in memory, until the command is to end."""

from __future__ import annotations

import asyncio

from duepoint.cli.local import applying
from duepoint.cli.local.manifestfiles import LocalObject
from duepoint.kube import schedules
from duepoint.kube.local.api import LocalApi

SPEC = {"schedule": "0 2 * * *", "webhook": {"url": "https://a.example/"}}


def a_schedule(name: str) -> LocalObject:
    head = {"apiVersion": schedules.API_VERSION, "kind": schedules.KIND}
    metadata = {"namespace": "default", "name": name}
    return LocalObject(
        where=name, file="a.yaml", document={**head, "metadata": metadata, "spec": SPEC}
    )


async def test_thousands_of_manifests_do_not_hold_up_the_end():
    applier = applying.Applier(LocalApi(lambda: 1_800_000_000_000_000, namespaces=("default",)))
    wanted = {(schedules.KIND, "default", name): a_schedule(name) for name in ("a", "b", "c")}
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(stop.set)  # once the first write lets others in between
    first, _ = await applier.apply(wanted, stop)
    stop.clear()
    second, _ = await applier.apply(wanted, stop)
    assert [change.key[2] for change in first] == ["a"]
    assert [change.key[2] for change in second] == ["b", "c"]
