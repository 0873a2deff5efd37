"""Targets whose servers stand in Secrets, with a guard that allows this machine's own address."""

from __future__ import annotations

import ipaddress
from typing import Any

from duepoint.clock import SystemClock
from duepoint.targets import (
    connections,
    dialing,
    egress,
    egressrules,
    kafka,
    secretcache,
    stream,
    streamelsewhere,
)
from tests.support import webhooktargets

HERE = (ipaddress.ip_network("127.0.0.1/32"),)
READER_ROLE = "duepoint-secret-reader"


def networks(*texts: str) -> tuple[Any, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


def a_guard(
    *, allowed: Any = HERE, lookup: egress.Lookup | None = None, own: Any = (), **policy: Any
) -> egress.Guard:
    policies = egressrules.Policy(allowed=allowed, **policy)
    return egress.Guard(policies, lambda: own, lookup=lookup)


def a_reader(api: Any) -> connections.Reader:
    return connections.Reader(secretcache.objects_of(api, SystemClock()), READER_ROLE)


def a_stream_target(api: Any, guard: egress.Guard, services: Any = None) -> stream.StreamTarget:
    known = services or webhooktargets.FixedServices()
    elsewhere = streamelsewhere.Elsewhere(a_reader(api), guard, known)
    return stream.StreamTarget(SystemClock(), elsewhere)


def a_kafka_target(api: Any, guard: egress.Guard, services: Any = None) -> kafka.KafkaTarget:
    known = services or webhooktargets.FixedServices()
    return kafka.KafkaTarget(
        a_reader(api), lambda namespace: dialing.Dialer(guard, known, namespace), SystemClock()
    )
