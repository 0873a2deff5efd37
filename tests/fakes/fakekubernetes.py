"""The product's API server in memory (``kube.local``), with faults and with nothing by itself.

Tests can make a request fail, before or after it was carried out, and read what was requested.
Any namespace exists, no controller acts: nothing is collected, Jobs end when a test ends them.
Answers are whole where the metadata alone was asked for, as from a server that cannot leave out the
rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from duepoint.kube import errors, port, times
from duepoint.kube.local import api as localapi
from duepoint.kube.local import documents
from duepoint.kube.local.api import Key
from duepoint.kube.local.documents import NamedObject

ItemT = TypeVar("ItemT", bound=port.KubeObject)


@dataclass(slots=True, kw_only=True)
class _Fault:
    error: errors.ApiError
    verb: str | None
    resource: str | None
    applied: bool


class FakeKubernetes(localapi.LocalApi):
    """The server, and what a test may do to it.

    Attributes:
        now_us: clock for creation times.
        requests: every (verb, path) so far.
        terminating: namespaces that take nothing new.
        job_quota: namespace -> most Jobs in it.
    """

    def __init__(self, now_us: Callable[[], int] = lambda: 1_800_000_000_000_000) -> None:
        super().__init__(now_us)
        self.now_us = now_us
        self.requests: list[tuple[str, str]] = []
        self.terminating: set[str] = set()
        self.job_quota: dict[str, int] = {}
        self._faults: list[_Fault] = []

    # -- what tests do ---------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number of the newest change."""
        return self._store.version

    @property
    def objects(self) -> dict[Key, dict[str, Any]]:
        """All objects, to be taken away and put back without a watch seeing it."""
        return self._store.objects

    def fail_next(
        self,
        error: errors.ApiError,
        *,
        verb: str | None = None,
        resource: str | None = None,
        applied: bool = False,
    ) -> None:
        """Raise this at the next such request; with ``applied`` after having done it."""
        self._faults.append(_Fault(error=error, verb=verb, resource=resource, applied=applied))

    def stored(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """A copy of an object, or None."""
        return documents.copied(self._store.objects.get((resource, namespace, name)))

    def restore(self, resource: str, document: dict[str, Any]) -> None:
        """Put an object back as it was, as a restore of etcd does: no watch tells of it."""
        metadata = document["metadata"]
        key = (resource, metadata["namespace"], metadata["name"])
        self._store.objects[key] = documents.copied(document)

    def put(self, key: Key, document: dict[str, Any]) -> None:
        """Store an object past every rule; watches see it."""
        self._store.put(key, documents.copied(document))

    def all_stored(self, resource: str) -> list[dict[str, Any]]:
        """Copies of all objects of a resource, by namespace and name."""
        return [documents.copied(self._store.objects[key]) for key in self._store.keys(resource)]

    async def apply(self, resource: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object, or replace its spec; the object as it is then."""
        metadata = manifest["metadata"]
        key = (resource, metadata["namespace"], metadata["name"])
        exists = key in self._store.objects
        target = NamedObject(
            attempt=f"apply {resource}",
            resource=resource,
            namespace=key[1],
            name=key[2] if exists else "",
        )
        document = documents.copied(dict(manifest))
        if exists:
            return documents.copied(self._replace(target, document))
        return documents.copied(self._create(target, document, dry_run=False))

    def end_job(self, namespace: str, name: str, *, succeeded: bool = True) -> None:
        """Let a Job finish now."""
        now = times.time_text(self.now_us())
        condition = {
            "type": "Complete" if succeeded else "Failed",
            "status": "True",
            "reason": "CompletionsReached" if succeeded else "BackoffLimitExceeded",
            "lastTransitionTime": now,
        }
        status = {"conditions": [condition], "completionTime": now if succeeded else None}
        self._set_job_status(namespace, name, status)

    def compact(self) -> None:
        """Forget the past: a watch from an earlier version is Gone."""
        self._store.oldest = self._store.version
        self._store._log.clear()
        self._store._changed.set()

    def _set_job_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        key = ("jobs", namespace, name)
        self._store.put(key, {**documents.copied(self._store.objects[key]), "status": status})

    # -- port.Api --------------------------------------------------------------------------

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        accept: str = port.JSON,
        **options: Any,
    ) -> bytes:
        """See ``port.Api.request``."""
        self.requests.append((verb, path))
        fault = self._fault(verb, documents.parse(verb, path).resource)
        if fault and not fault.applied:
            raise fault.error
        answer = await super().request(verb, path, body, **options)
        if fault:
            raise fault.error
        return answer

    def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.WatchEvent[ItemT]]:
        """See ``port.Api.watch``."""
        self.requests.append(("WATCH", path))
        return super().watch(path, item_type, resource_version, query=query)

    def _fault(self, verb: str, resource: str) -> _Fault | None:
        for fault in self._faults:
            if fault.verb in (None, verb) and fault.resource in (None, resource):
                self._faults.remove(fault)
                return fault
        return None

    # -- what no controller does here -------------------------------------------------------

    def _collect(self, uid: str) -> None:
        pass

    def _check_namespace(self, target: NamedObject) -> None:
        if target.namespace in self.terminating:
            message = f"namespace {target.namespace} is being terminated"
            causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
            raise documents.refusal(target, 403, "Forbidden", message, causes)
        used = sum(key[1] == target.namespace for key in self._store.keys("jobs"))
        if target.resource == "jobs" and used >= self.job_quota.get(target.namespace, used + 1):
            raise documents.refusal(target, 403, "Forbidden", "exceeded quota")
