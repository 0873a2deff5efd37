"""How kopf is set, and why; by its documented settings only.

Measured with kopf 1.45.2 on kube-apiserver 1.36; figures are in ``docs/design``'s notes on kopf.
kopf watches and nothing else: it patches nothing, posts nothing, scans nothing, and compares
nothing. Before it calls a handler kopf copies each object several times over and compares the
copies with what an annotation says of it; our handlers do not ask. The two storages below store
nothing and find nothing, which halves the CPU time of an event.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import kopf

#: Every watch is renewed this often by the server; ours is a little longer.
SERVER_TIMEOUT_SECONDS = 300

#: Warnings about nothing: all streams in one line, and signals that are not kopf's to take.
_NOISE = ("Unprocessed streams left", "OS signals are ignored")


def settings() -> kopf.OperatorSettings:
    """New settings for one life of kopf's operator."""
    tuned = kopf.OperatorSettings()
    # Our own events are coalesced and rate-limited elsewhere.
    tuned.posting.enabled = False
    # Scanning lists and watches CRDs and namespaces, for which we have and want no rights: it
    # would retry 403s for 54 s before the first watch begins.
    tuned.scanning.disabled = True
    # The initial list as a stream: 130 MB instead of 639 MB at 50,000 objects.
    tuned.watching.initial_streaming = True
    tuned.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    tuned.watching.client_timeout = SERVER_TIMEOUT_SECONDS + 30
    # A stalled stream on an open socket: seen after this, all changes visible then.
    tuned.watching.inactivity_timeout = 70
    # After a 410 kopf lists at once, each time; this is the only wait in that loop.
    tuned.watching.reconnect_backoff = 0.3
    # No handler of ours asks what has changed: half the time of an event would go into copies.
    tuned.persistence.diffbase_storage = NoDiffBase()
    tuned.persistence.progress_storage = NoProgress()
    # A worker task per object lives this long after its last event; the default of 5 s keeps
    # 22,000 tasks at 50,000 objects. A limit of workers would multiply with it: left None.
    tuned.queueing.idle_timeout = 0.2
    # After these kopf gives up and our supervisor starts it anew with a backoff of its own.
    tuned.networking.error_backoffs = [0.5, 1, 2, 4, 8, 15]
    tuned.networking.connect_timeout = 5
    tuned.networking.request_timeout = 60
    # Our stop flag ends kopf; its own SIGKILL timer must never end the process.
    tuned.process.ultimate_exiting_timeout = None
    return tuned


class NoDiffBase(kopf.DiffBaseStorage):
    """Every object looks alike: empty."""

    def build(
        self,
        *,
        body: kopf.Body,  # noqa: ARG002 - kopf's
        extra_fields: Iterable[Any] | None = None,  # noqa: ARG002 - kopf's
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002 - kopf's
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


class NoProgress(kopf.AnnotationsProgressStorage):
    """Nothing to leave out of an empty object."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def quieten() -> None:
    """Keep out of the log what kopf says at each end of a term: its streams, its signals."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_news)  # once: it is the same function


def _is_news(record: logging.LogRecord) -> bool:
    return not (record.name.startswith("kopf") and record.getMessage().startswith(_NOISE))
