"""Schedules and Jobs by the hundred thousand, put into etcd just as the API server writes them.

Creating so many by requests takes minutes and heats the API server up. So a few *shapes* are
created by requests, settled by an operator, and read from etcd as bytes; each copy is those bytes
with another name and other uids. Names and uids of a copy are as long as those of its shape, so a
length that stands before a string stays right. The API server's caches see the copies as they see
any other write. Each has a revision of its own: of many in one transaction, a watch may lose some.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

_AT_A_TIME = 16
_SCHEDULES = "/registry/duepoint.dev/schedules/{ns}/{name}"
_JOBS = "/registry/jobs/{ns}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The name and uid of an object, which differ in each copy."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Schedule to copy, with its Jobs, whose names begin with the Schedule's."""

    schedule: Named
    jobs: tuple[Named, ...] = ()


def copy_name(shape: int, number: int) -> str:
    """Return the name of a copy of a shape, 0 being the shape; all names are equally long."""
    return f"stock-{shape:02d}-{number:06d}"


async def lay(etcd: str, namespace: str, shapes: Sequence[Shape], copies: int) -> None:
    """Write so many copies of each shape."""
    async with aiohttp.ClientSession(etcd) as session:
        sources = [await _read(session, namespace, shape) for shape in shapes]
        pairs = _copied(namespace, shapes, sources, copies)
        await asyncio.gather(*(_write(session, pairs) for _ in range(_AT_A_TIME)))


async def _read(session: aiohttp.ClientSession, namespace: str, shape: Shape) -> list[bytes]:
    keys = [_SCHEDULES.format(ns=namespace, name=shape.schedule.name)]
    keys += [_JOBS.format(ns=namespace, name=job.name) for job in shape.jobs]
    found: list[bytes] = []
    for key in keys:
        answer = await _ask(session, "range", {"key": _text(key.encode())})
        if not answer.get("kvs"):
            raise RuntimeError(f"etcd has no {key}")
        found.append(base64.b64decode(answer["kvs"][0]["value"]))
    return found


def _copied(
    namespace: str, shapes: Sequence[Shape], sources: Sequence[list[bytes]], copies: int
) -> Iterator[tuple[str, bytes]]:
    """Yield key and value of each copy."""
    for number in range(1, copies + 1):
        for place, (shape, (schedule, *jobs)) in enumerate(zip(shapes, sources, strict=True)):
            was, now = shape.schedule, Named(name=copy_name(place, number), uid=str(uuid.uuid4()))
            yield _SCHEDULES.format(ns=namespace, name=now.name), _renamed(schedule, was, now)
            for job, data in zip(shape.jobs, jobs, strict=True):
                name = job.name.replace(was.name, now.name)
                made = data.replace(job.uid.encode(), str(uuid.uuid4()).encode())
                yield _JOBS.format(ns=namespace, name=name), _renamed(made, was, now)


def _renamed(data: bytes, was: Named, now: Named) -> bytes:
    renamed = data.replace(was.name.encode(), now.name.encode())
    return renamed.replace(was.uid.encode(), now.uid.encode())


async def _write(session: aiohttp.ClientSession, pairs: Iterator[tuple[str, bytes]]) -> None:
    for key, value in pairs:
        await _ask(session, "put", {"key": _text(key.encode()), "value": _text(value)})


async def _ask(session: aiohttp.ClientSession, what: str, wish: object) -> dict[str, Any]:
    async with session.post(f"/v3/kv/{what}", data=msgspec.json.encode(wish)) as answer:
        answer.raise_for_status()
        found: dict[str, Any] = msgspec.json.decode(await answer.read())
        return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
