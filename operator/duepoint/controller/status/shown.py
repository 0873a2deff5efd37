"""What a status says, decoded no further than a decision needs.

A takeover looks at the status of every object; a few fields are decoded and the rest is skipped.
"""

from __future__ import annotations

import msgspec

from duepoint.controller.schedules.plan import Shown
from duepoint.controller.status import opentext
from duepoint.kube import times
from duepoint.schedules.conditions import ConditionType, Reason


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = -1


class _Runs(msgspec.Struct):
    """Of the started runs those by hand are none of regular slots."""

    started: int = 0
    manual: int = 0


class _OpenSlots(msgspec.Struct):
    """Open slots as ``opentext`` writes them."""

    started: str = ""
    waiting: str = ""


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = -1
    settled_through: str | None = None
    open_slots: _OpenSlots | None = None
    timing_hash: str = ""
    conditions: list[_Condition] | None = None
    runs: _Runs | None = None


class _Verdict(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    observed_generation: int = -1


class _Verdicts(msgspec.Struct, rename="camel"):
    observed_generation: int = -1
    conditions: list[_Verdict] | None = None


class _Observed(msgspec.Struct, rename="camel"):
    observed_generation: int = -1


class _Next(msgspec.Struct, rename="camel"):
    next_schedule_time: str | None = None


_NONE_OPEN = _OpenSlots()
#: In the text of a status whose generation waits for something; few do.
_UNKNOWN = b'"Unknown"'
_next_decoder = msgspec.json.Decoder(_Next)
_decoder = msgspec.json.Decoder(_Status)
_verdicts_decoder = msgspec.json.Decoder(_Verdicts)
_observed_decoder = msgspec.json.Decoder(_Observed)


def of(status: bytes) -> Shown:
    """The decision's view of the JSON text of ``.status``; a text that is not ours says nothing."""
    try:
        read = _decoder.decode(status)
        settled_us = times.parse_us(read.settled_through) if read.settled_through else None
    except (msgspec.DecodeError, ValueError):
        return Shown()
    listed = read.open_slots or _NONE_OPEN
    accepted = armed = suspended = waits = False
    stalled = ""
    for one in read.conditions or ():
        if one.type == ConditionType.READY:
            accepted = one.status == "True" and one.observed_generation == read.observed_generation
            waits = one.status == "Unknown"
            armed, suspended = one.reason == Reason.ARMED, one.reason == Reason.SUSPENDED
        elif one.type == ConditionType.STALLED:
            stalled = one.message
    return Shown(
        observed_generation=read.observed_generation,
        accepted=accepted,
        settled_us=settled_us,
        timing_hash=read.timing_hash,
        started_us=opentext.parse(listed.started),
        waiting_us=opentext.parse(listed.waiting),
        armed=armed,
        suspended=suspended,
        stalled=stalled,
        waits=waits,
        started=0 if read.runs is None else max(0, read.runs.started - read.runs.manual),
    )


def answered_generation(status: bytes) -> int:
    """The newest generation that was accepted or refused, as far as the text tells; -1 = none.

    A generation that was looked at and waits for something was not.
    """
    observed = observed_generation(status)
    if _UNKNOWN not in status:
        return observed
    try:
        read = _verdicts_decoder.decode(status)
    except msgspec.DecodeError:
        return -1
    for one in read.conditions or ():
        if one.type == ConditionType.READY and one.status == "Unknown":
            return observed - 1 if observed > 1 else -1
    return observed


def has_accepted(status: bytes, generation: int) -> bool:
    """``of(status).has_accepted(generation)``, of a status that is not looked at any further."""
    try:
        read = _verdicts_decoder.decode(status)
    except msgspec.DecodeError:
        return False
    if read.observed_generation != generation:
        return False
    for one in read.conditions or ():
        if one.type == ConditionType.READY:
            return one.status == "True" and one.observed_generation == generation
    return False


def observed_generation(status: bytes) -> int:
    """The same field of the same text, alone: it is wanted of every object."""
    try:
        return _observed_decoder.decode(status).observed_generation
    except msgspec.DecodeError:
        return -1


def next_us(status: bytes) -> int:
    """The next slot that it shows; 0 = none."""
    try:
        text = _next_decoder.decode(status).next_schedule_time
        return times.parse_us(text) if text else 0
    except (msgspec.DecodeError, ValueError):
        return 0
