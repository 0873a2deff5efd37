"""An API server in memory: what Duepoint relies on, and nothing it does not.

It is a ``kube.port.Api``: names are unique (409), writes carry versions (409), status is a
subresource with a JSON Patch that may test, lists come in pages and with labels, watches resume
from a version or are Gone, a namespace may be terminating or over its quota. The conformance
suite (``tests/conformance/test_kube.py``) holds it to the behaviour of a real server. It does
not know schemas: of a Job it checks what every bad template of the tests breaks, of a Schedule
that its status does not turn back. Nothing runs and nothing is collected; tests do that.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from duepoint.kube import errors, port, schedules, times
from tests.fakes import kubedocuments

ItemT = TypeVar("ItemT", bound=port.KubeObject)

_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<api>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>status))?)?$"
)
_GROUPS = {
    None,
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    schedules.GROUP,
}
#: A decoded body of any shape.
_Json = Any
_BORN_UNSEEN = {schedules.PLURAL, schedules.RUN_PLURAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What a path names."""

    attempt: str
    resource: str
    namespace: str
    name: str
    subresource: str


@dataclass(frozen=True, slots=True)
class _Logged:
    """One change, as watches see it."""

    version: int
    type: str
    resource: str
    namespace: str
    object: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class _Fault:
    error: errors.ApiError
    verb: str | None
    resource: str | None
    applied: bool


@dataclass(slots=True)
class FakeKubernetes:
    """The server, and what a test may do to it.

    Attributes:
        now_us: clock for creation times.
        requests: every (verb, path) so far.
        terminating: namespaces that take nothing new.
        job_quota: namespace -> most Jobs in it.
    """

    now_us: Callable[[], int] = lambda: 1_800_000_000_000_000
    requests: list[tuple[str, str]] = field(default_factory=list)
    terminating: set[str] = field(default_factory=set)
    job_quota: dict[str, int] = field(default_factory=dict)
    _objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    _version: int = 100
    _oldest: int = 0
    _log: list[_Logged] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _faults: list[_Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        metadata = {"name": "kube-system", "uid": str(uuid.uuid4())}
        self._objects["namespaces", "", "kube-system"] = {"metadata": metadata}

    # -- what tests do ---------------------------------------------------------------------

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
        return kubedocuments.copied(self._objects.get((resource, namespace, name)))

    def restore(self, resource: str, document: dict[str, Any]) -> None:
        """Put an object back as it was, as a restore of etcd does: no watch tells of it."""
        metadata = document["metadata"]
        key = (resource, metadata["namespace"], metadata["name"])
        self._objects[key] = kubedocuments.copied(document)

    def all_stored(self, resource: str) -> list[dict[str, Any]]:
        """Copies of all objects of a resource, by namespace and name."""
        return [
            kubedocuments.copied(self._objects[key])
            for key in sorted(self._objects)
            if key[0] == resource
        ]

    async def apply(self, resource: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object, or replace its spec; the object as it is then."""
        metadata = manifest["metadata"]
        key = (resource, metadata["namespace"], metadata["name"])
        target = _Target(
            attempt=f"apply {resource}",
            resource=resource,
            namespace=key[1],
            name=key[2] if key in self._objects else "",
            subresource="",
        )
        document = kubedocuments.copied(dict(manifest))
        if key not in self._objects:
            return self._create(target, document, dry_run=False)
        return self._replace(target, document)

    def end_job(self, namespace: str, name: str, *, succeeded: bool = True) -> None:
        """Let a Job finish now."""
        job = kubedocuments.copied(self._objects["jobs", namespace, name])
        now = times.time_text(self.now_us())
        condition = {
            "type": "Complete" if succeeded else "Failed",
            "status": "True",
            "reason": "CompletionsReached" if succeeded else "BackoffLimitExceeded",
            "lastTransitionTime": now,
        }
        job["status"] = {"conditions": [condition], "completionTime": now if succeeded else None}
        self._store("MODIFIED", ("jobs", namespace, name), job)

    def begin_job(self, namespace: str, name: str, *, pods: int) -> None:
        """Let the Job controller have begun a Job now, with so many Pods."""
        job = kubedocuments.copied(self._objects["jobs", namespace, name])
        began = (job.get("status") or {}).get("startTime") or times.time_text(self.now_us())
        job["status"] = {"startTime": began, "active": pods, "ready": 0}
        self._store("MODIFIED", ("jobs", namespace, name), job)

    def compact(self) -> None:
        """Forget the past: a watch from an earlier version is Gone."""
        self._oldest = self._version
        self._log.clear()
        self._changed.set()

    # -- port.Api --------------------------------------------------------------------------

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = port.JSON,
        accept: str = port.JSON,
        timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
        purpose: port.Purpose = port.Purpose.REQUEST,
    ) -> bytes:
        """See ``port.Api.request``."""
        del timeout_seconds, purpose
        await asyncio.sleep(0)  # let others in between, as a network would
        target = _target(verb, path)
        self.requests.append((verb, path))
        fault = self._fault(verb, target.resource)
        if fault and not fault.applied:
            raise fault.error
        answer = self._answer(verb, target, _document(body), dict(query or {}), content_type)
        if fault:
            raise fault.error
        return msgspec.json.encode(answer)

    async def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = port.PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.ListPage[ItemT]]:
        """See ``port.Api.list_pages``."""
        decoder = msgspec.json.Decoder(port.ListPage[item_type])  # type: ignore[valid-type]
        asked = {**(query or {}), "limit": str(limit)}
        while True:
            page = decoder.decode(await self.request("GET", path, query=asked))
            yield page
            if not page.metadata.continue_token:
                return
            asked["continue"] = page.metadata.continue_token

    async def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.WatchEvent[ItemT]]:
        """See ``port.Api.watch``."""
        target = _target("WATCH", path)
        version = int(resource_version)
        self.requests.append(("WATCH", path))
        while True:
            if version < self._oldest:
                raise _refusal(target, 410, "Expired", "too old resource version")
            for logged in [entry for entry in self._log if entry.version > version]:
                version = logged.version
                if _concerns(logged, target, dict(query or {})):
                    item = msgspec.json.decode(msgspec.json.encode(logged.object), type=item_type)
                    yield port.WatchEvent(port.ChangeType(logged.type), item)
            if version >= self._version:
                self._changed.clear()
                await self._changed.wait()

    # -- verbs -----------------------------------------------------------------------------

    def _answer(
        self, verb: str, target: _Target, document: _Json, query: dict[str, str], content_type: str
    ) -> dict[str, Any]:
        match verb:
            case "GET" if target.name:
                return self._existing(target)
            case "GET":
                return self._listed(target, query)
            case "POST":
                return self._create(target, document, dry_run=query.get("dryRun") == "All")
            case "PUT":
                return self._replace(target, document)
            case "PATCH":
                return self._patch(target, document, content_type)
            case "DELETE":
                return self._delete(target, document or {})
            case _:
                raise _refusal(target, 405, "MethodNotAllowed", "no such verb")

    def _existing(self, target: _Target) -> dict[str, Any]:
        found = self._objects.get((target.resource, target.namespace, target.name))
        if found is None:
            raise _refusal(target, 404, "NotFound", f'{target.resource} "{target.name}" not found')
        return found

    def _listed(self, target: _Target, query: dict[str, str]) -> dict[str, Any]:
        version, after = str(self._version), ("", "")
        if token := query.get("continue"):
            version, *rest = token.split("|")
            after = (rest[0], rest[1])
            if int(version) < self._oldest:
                raise _refusal(target, 410, "Expired", "the continue token is too old")
        keys = [
            key
            for key in sorted(self._objects)
            if key[0] == target.resource
            and target.namespace in ("", key[1])
            and key[1:] > after
            and kubedocuments.has_labels(self._objects[key], query.get("labelSelector", ""))
        ]
        limit = int(query.get("limit") or len(keys) or 1)
        metadata = {"resourceVersion": version}
        if len(keys) > limit:
            metadata["continue"] = "|".join([version, *keys[limit - 1][1:]])
        return {"metadata": metadata, "items": [self._objects[key] for key in keys[:limit]]}

    def _create(
        self, target: _Target, document: dict[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        metadata = document.setdefault("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "") + uuid.uuid4().hex[:5]
        self._check_new(target, document, name)
        metadata |= {
            "name": name,
            "namespace": target.namespace,
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "creationTimestamp": times.time_text(self.now_us()),
        }
        if target.resource in _BORN_UNSEEN:
            document["status"] = {"observedGeneration": -1}
        if not dry_run:
            self._store("ADDED", (target.resource, target.namespace, name), document)
        return document

    def _check_new(self, target: _Target, document: dict[str, Any], name: str) -> None:
        if document["metadata"].get("resourceVersion"):
            raise _refusal(
                target, 500, "", "resourceVersion should not be set on objects to be created"
            )
        if target.namespace in self.terminating:
            raise _refusal(
                target,
                403,
                "Forbidden",
                f"unable to create new content in namespace {target.namespace} because it is "
                "being terminated",
                [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}],
            )
        if target.resource == "jobs":
            self._check_new_job(target, document, name)
        if (target.resource, target.namespace, name) in self._objects:
            raise _refusal(
                target, 409, "AlreadyExists", f'{target.resource} "{name}" already exists'
            )

    def _check_new_job(self, target: _Target, document: dict[str, Any], name: str) -> None:
        used = sum(key[:2] == ("jobs", target.namespace) for key in self._objects)
        if used >= self.job_quota.get(target.namespace, used + 1):
            raise _refusal(
                target, 403, "Forbidden", f'jobs.batch "{name}" is forbidden: exceeded quota'
            )
        pod = document.get("spec", {}).get("template", {}).get("spec") or {}
        for path, right in (
            ("restartPolicy", pod.get("restartPolicy") in ("Never", "OnFailure")),
            ("containers", bool(pod.get("containers"))),
        ):
            if not right:
                at = f"spec.template.spec.{path}"
                told = f'Job.batch "{name}" is invalid: {at}: Required value'
                cause = {"field": at, "message": "Required value"}
                raise _refusal(target, 422, "Invalid", told, [cause])

    def _replace(self, target: _Target, document: dict[str, Any]) -> dict[str, Any]:
        existing = self._existing(target)
        wanted = document["metadata"].get("resourceVersion")
        uid = document["metadata"].get("uid", existing["metadata"]["uid"])
        if wanted not in (None, existing["metadata"]["resourceVersion"]):
            raise _refusal(target, 409, "Conflict", "the object has been modified")
        if uid != existing["metadata"]["uid"]:
            raise _refusal(target, 409, "Conflict", "Precondition failed: UID in precondition")
        kept = {key: existing["metadata"][key] for key in ("uid", "creationTimestamp")}
        changed = document.get("spec") != existing.get("spec")
        document["metadata"] |= kept
        document["metadata"]["generation"] = existing["metadata"]["generation"] + changed
        if "status" in existing:
            document["status"] = existing["status"]
        self._store("MODIFIED", (target.resource, target.namespace, target.name), document)
        return document

    def _patch(self, target: _Target, patch: _Json, content_type: str) -> dict[str, Any]:
        existing = self._existing(target)
        document = kubedocuments.copied(existing)
        if content_type == port.JSON_PATCH:
            if not all(kubedocuments.apply_operation(document, operation) for operation in patch):
                told = "the server rejected our request due to an error in our request"
                raise _refusal(target, 422, "Invalid", told)
        elif content_type == port.MERGE_PATCH:
            kubedocuments.merge(document, patch)
        else:
            raise _refusal(target, 415, "UnsupportedMediaType", content_type)
        if target.subresource == "status":
            _check_status(target, existing.get("status") or {}, document.get("status") or {})
            document = {**kubedocuments.copied(existing), "status": document.get("status")}
        self._store("MODIFIED", (target.resource, target.namespace, target.name), document)
        return document

    def _delete(self, target: _Target, options: dict[str, Any]) -> dict[str, Any]:
        existing = self._existing(target)
        uid = (options.get("preconditions") or {}).get("uid", existing["metadata"]["uid"])
        if uid != existing["metadata"]["uid"]:
            raise _refusal(target, 409, "Conflict", "Precondition failed: UID in precondition")
        key = (target.resource, target.namespace, target.name)
        self._store("DELETED", key, kubedocuments.copied(existing))
        del self._objects[key]
        return {"kind": "Status", "status": "Success"}

    # -- storage ---------------------------------------------------------------------------

    def _store(self, type_: str, key: tuple[str, str, str], document: dict[str, Any]) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = document
        snapshot = kubedocuments.copied(document)
        self._log.append(_Logged(self._version, type_, key[0], key[1], snapshot))
        self._changed.set()

    def _fault(self, verb: str, resource: str) -> _Fault | None:
        for fault in self._faults:
            if fault.verb in (None, verb) and fault.resource in (None, resource):
                self._faults.remove(fault)
                return fault
        return None


def _target(verb: str, path: str) -> _Target:
    attempt = f"{verb} {path}"
    parts = _PATH.match(path)
    if parts is None or parts["group"] not in _GROUPS:
        raise errors.from_answer(attempt, 404, {}, b"404 page not found")
    return _Target(
        attempt=attempt,
        resource=parts["resource"],
        namespace=parts["namespace"] or "",
        name=parts["name"] or "",
        subresource=parts["subresource"] or "",
    )


def _refusal(
    target: _Target,
    code: int,
    reason: str,
    message: str,
    causes: list[dict[str, str]] | None = None,
) -> errors.ApiError:
    status = {"code": code, "reason": reason, "message": message, "details": {"causes": causes}}
    return errors.from_answer(target.attempt, code, {}, msgspec.json.encode(status))


def _document(body: object) -> _Json:
    if body is None:
        return None
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return msgspec.json.decode(encoded)


def _concerns(logged: _Logged, target: _Target, query: dict[str, str]) -> bool:
    return (
        logged.resource == target.resource
        and target.namespace in ("", logged.namespace)
        and kubedocuments.has_labels(logged.object, query.get("labelSelector", ""))
    )


def _instant_us(text: str | None) -> int:
    """As the schema compares times: a fraction may be there or not."""
    return -1 if text is None else times.parse_us(text)


_MAY_NOT_FALL: dict[str, Callable[[Any], int]] = {
    "observedGeneration": lambda number: -1 if number is None else number,
    "settledThrough": _instant_us,
}


def _check_status(target: _Target, old: dict[str, Any], new: dict[str, Any]) -> None:
    """The guards of the CRD."""
    if target.resource not in _BORN_UNSEEN:
        return
    for name, measure in _MAY_NOT_FALL.items():
        if measure(new.get(name)) < measure(old.get(name)):
            told = f"status: Invalid value: {name} may not fall"
            raise _refusal(target, 422, "Invalid", told, [{"field": "status"}])
