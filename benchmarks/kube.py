"""Duepoint on Kubernetes beside CronJob: bursts, and many Schedules. ``make bench-kube``.

``SMALL=1`` runs a small part of each, to see that everything works; ``PART=burst``, ``PART=scale``
or ``PART=restart`` runs one of them, ``COUNT=`` chooses another size of it, and ``TIMES=`` how many
restarts. ``BESIDE=`` names the CronJob controllers of a burst, ``raised,default`` unless said
otherwise; an empty one leaves both out. Two workers and an operator run as processes with the
rights that the chart gives them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from benchmarks import kubeburst, kubeplane, kuberestart, kubescale, report, scene
from benchmarks.report import Figure

_SMALL = os.environ.get("SMALL") == "1"
_PART = os.environ.get("PART", "")
_COUNT = int(os.environ.get("COUNT", "0"))
_BURSTS = (_COUNT,) if _COUNT else (200,) if _SMALL else (1_000, 5_000)
#: For how long the CronJob controller may work at its default limits: 1,000 take two minutes, 5,000
#: would take ten.
_DEFAULT_LIMIT_SECONDS = 60.0 if _SMALL else 300.0
_BESIDE = os.environ.get("BESIDE", "raised,default").split(",")
_APPLIED = _COUNT or (1_000 if _SMALL else 10_000)
_LYING_AROUND = _COUNT or (2_000 if _SMALL else 100_000)
_TIMES = int(os.environ.get("TIMES", "1" if _SMALL else "3"))


async def run() -> list[Figure]:
    figures: list[Figure] = []
    if _PART in ("", "burst"):
        async with _scene() as made:
            operator, worker = await made.stack.running()
            second = made.stack.worker("worker-2")
            await second.wait_until_ready()
            limit = _DEFAULT_LIMIT_SECONDS
            workers = [worker, second]
            figures += await kubeburst.run(made, workers, operator, _BURSTS, limit)
    if _PART in ("", "scale"):
        async with _scene() as made:
            figures += await kubescale.run(made, _APPLIED)
    if _PART in ("", "restart"):
        restarted: list[Figure] = []
        try:
            async with _scene() as made:
                restarted = await kuberestart.run(made, _LYING_AROUND, _TIMES)
        except OSError as error:  # an API server with so many objects may be slow to remove them
            if not restarted:
                raise
            report.say(f"not cleared, which ends with the cluster: {error}")
        figures += restarted
    return figures


@contextlib.asynccontextmanager
async def _scene() -> AsyncIterator[kubeburst.Scene]:
    async with scene.stack() as stack:
        names = {kind: stack.plane.create_namespace(kind) for kind in ("bare", "raised", "default")}
        async with kubeplane.opened(stack.plane) as plane:
            yield kubeburst.Scene(stack, plane, names, _BESIDE)
