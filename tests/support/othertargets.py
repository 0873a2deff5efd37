"""Targets whose servers are named in Secrets, with a dialler that allows this machine's address."""

from __future__ import annotations

import ipaddress
from typing import Any

from duepoint.clock import SystemClock
from duepoint.net import dialling, egressrules, resolving
from duepoint.targets.kafka import target as kafkatarget
from duepoint.targets.secretaccess import references, servers
from duepoint.targets.stream import external
from duepoint.targets.stream import target as streamtarget
from tests.support import webhooktargets

HERE = (ipaddress.ip_network("127.0.0.1/32"),)
READER_ROLE = "duepoint-secret-reader"


def networks(*texts: str) -> tuple[Any, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


def a_dialler(
    *,
    allowed: Any = HERE,
    lookup: resolving.Ask = resolving.ask_system,
    own: Any = (),
    **policy: Any,
) -> dialling.Dialler:
    policies = egressrules.EgressPolicy(allowed=allowed, **policy)
    return dialling.Dialler(policies, lambda: own, ask=lookup)


def a_reader(api: Any) -> servers.ConnectionReader:
    return servers.ConnectionReader(references.objects_of(api, SystemClock()), READER_ROLE)


def a_stream_target(
    api: Any, dialler: dialling.Dialler, services: Any = None
) -> streamtarget.StreamTarget:
    known = services or webhooktargets.FixedServices()
    elsewhere = external.ExternalStreams(a_reader(api), servers.ServerDialler(dialler, known))
    return streamtarget.StreamTarget(SystemClock(), elsewhere)


def a_kafka_target(
    api: Any, dialler: dialling.Dialler, services: Any = None
) -> kafkatarget.KafkaTarget:
    known = services or webhooktargets.FixedServices()
    return kafkatarget.KafkaTarget(
        a_reader(api),
        servers.ServerDialler(dialler, known),
        SystemClock(),
    )
