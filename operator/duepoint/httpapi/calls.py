"""One request on its way through the API, with readers for its URL, headers and body.

Invalid input raises ``OperationProblem`` with the name of the parameter or header. Rows of members
have their own reader, with messages for each field (``schedules.sets``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar
from urllib import parse

import msgspec

from duepoint import clock as clocks
from duepoint import errors, shares
from duepoint.delayqueue import delayqueue, serverhealth
from duepoint.delayqueue.wire import nodes
from duepoint.httpapi import access, ownsets
from duepoint.httpapi.problems import OperationProblem
from duepoint.httpapi.remembered import Remembered
from duepoint.kube import api as kubeapi
from duepoint.kube import times, transport
from duepoint.model import checks
from duepoint.model.vocabulary import Fields
from duepoint.net import httpserver
from duepoint.schedules import jsontext
from duepoint.schedules.sets import members as memberjson

#: Largest body of a dashboard request; one about a member has the limit of its set's rows.
MOST_BODY_BYTES: Final = 68 * 1024
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
MERGE_PATCH: Final = "application/merge-patch+json"

_TAG = re.compile(r'"([0-9a-f]{8})"')
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_PARAMETERS = 16
#: Most bulk streams of the process and of a namespace: each keeps some batches in memory.
_MOST_STREAMS, _MOST_OF_A_NAMESPACE = 64, 16
_DURABILITY_SECONDS = 5.0
_QUEUE_SECONDS = 2.0
_FORECAST_SECONDS, _MOST_FORECASTS = 60.0, 50


@dataclass(eq=False)
class Shared:
    """State that all requests share.

    Attributes:
        users: sessions of the dashboard's users at the API server; None = there is no dashboard.
        streams: places of the bulk streams in flight, by namespace.
        durability: cache of the durability that the servers promise.
        places: the dashboard users' shares of connections to the API server.
        whole, forecasts: caches of the dashboard's queue view and forecasts.
        forecast_turns: lets one forecast run at a time.
    """

    queue: delayqueue.DelayQueue
    clock: clocks.Clock
    rights: access.Access
    users: kubeapi.UserSessions | None = None

    def __post_init__(self) -> None:
        queue = self.queue
        self.sets = ownsets.OwnSets(queue.sets, queue.members, queue.api_requests)
        self.streams = shares.FairPlaces[str](_MOST_STREAMS, greed=None, most=_MOST_OF_A_NAMESPACE)
        self.durability = Remembered[None, serverhealth.ServerDurability](
            1, yes=_DURABILITY_SECONDS
        )
        self.places = shares.FairPlaces[str](transport.REQUEST_CONNECTIONS)
        self.whole = Remembered[None, Fields](1, yes=_QUEUE_SECONDS)
        self.forecasts = Remembered[tuple[object, ...], Fields](
            _MOST_FORECASTS, yes=_FORECAST_SECONDS
        )
        self.forecast_turns = shares.FairPlaces[str](1)


BASE: Final = "/v1/namespaces/{namespace}/schedulesets/{set}"


#: Headers that change what a request means; a change that does not support one refuses it.
DECIDING: Final = ("If-Match", "If-None-Match", "Idempotency-Key", "Duepoint-Durability")


class Operation(NamedTuple):
    """One operation.

    Attributes:
        name: its ``operationId``, and its label in metrics.
        path: below ``base``.
        handle: carries it out; returns None if it has answered with a stream.
        needs: verbs on ``schedulesets/schedules``. A PUT needs create with If-None-Match, update
            with If-Match, both without. Empty: the API server decides by the caller's own token.
        parameters: names of the query parameters.
        limit: default and largest page size, if ``limit`` is one of the parameters.
        body: the fields of the request's body, or of a row.
        answers: the body of each success, by status; a list = a page of such; None = no body.
        headers: those of ``DECIDING`` that it supports.
        rights: what it needs, in words, if that is not a verb on the members of a set.
    """

    name: str
    method: str
    path: str
    handle: Callable[[Call], Awaitable[httpserver.HttpResponse | None]]
    needs: tuple[str, ...]
    summary: str
    parameters: tuple[str, ...] = ()
    body: type[Fields] | None = None
    answers: Mapping[int, type[Fields] | list[type[Fields]] | None] = {}
    headers: tuple[str, ...] = ()
    limit: tuple[int, int] = (100, 1_000)
    is_bulk: bool = False
    rights: str = ""
    base: str = BASE

    @property
    def is_of_set(self) -> bool:
        """Whether it concerns a set, and its rights are verbs on the set's members."""
        return bool(self.needs)

    @property
    def is_change(self) -> bool:
        """Whether it is a change, so that a repeat with the same key gets the first answer."""
        return "Idempotency-Key" in self.headers

    @property
    def body_types(self) -> tuple[str, ...]:
        """Return the content types that a body may have; empty if there is no body."""
        if self.is_bulk:
            return (NDJSON,)
        if not self.body:
            return ()
        return (MERGE_PATCH, JSON) if self.method == "PATCH" else (JSON,)

    def verbs(self, headers: Mapping[str, str]) -> tuple[str, ...]:
        """Return the verbs that a request with these headers needs."""
        if self.method != "PUT":
            return self.needs
        if "if-none-match" in headers:
            return ("create",)
        return ("update",) if "if-match" in headers else self.needs

    def check_deciding(self, headers: Mapping[str, str]) -> None:
        """Raise Problem InvalidParameter for a condition or promise that it would ignore."""
        if self.method == "GET" or not self.is_of_set:
            return
        for name in DECIDING:
            if name not in self.headers and name.lower() in headers:
                taken = ", ".join(self.headers) or "none"
                message = f"this operation does not take it; it takes {taken}"
                raise OperationProblem("InvalidParameter", message, field=name)


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """A request with its operation, caller, set and body.

    Attributes:
        set_name: empty for an operation that does not concern a set.
        id: id of the member in the URL, not checked yet, or name of a Schedule.
        body: the body; empty for bulk streams, which read it themselves.
        chosen: choices that a repeat of this request must reuse: the id of a new member, the run
            of a trigger, and when the request came.
        owned: the set; not set for an operation that does not concern one.
        api: the caller's own session at the API server; only for operations of the dashboard.
    """

    request: httpserver.HttpRequest
    request_id: str = ""
    shared: Shared
    operation: Operation
    caller: access.Caller
    namespace: str = ""
    set_name: str = ""
    id: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    chosen: dict[str, Any] = field(default_factory=dict)
    owned: ownsets.OwnSet = field(init=False)
    api: kubeapi.ApiSession = field(init=False)

    # -- the URL -------------------------------------------------------------------------------

    def whole(self, name: str, default: int, most: int) -> int:
        """Return a parameter as a whole number from 1 to ``most``."""
        text = self.parameters.get(name)
        if text is None:
            return default
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if not 1 <= number <= most:
            message = f"{errors.quoted(text)} is not a whole number of 1 to {most}"
            raise OperationProblem("InvalidParameter", message, field=name)
        return number

    @property
    def limit(self) -> int:
        """Return how many items a page should have."""
        return self.whole("limit", *self.operation.limit)

    def text(self, name: str) -> str:
        return self.parameters.get(name, "")

    def instant_us(self, name: str) -> int | None:
        """Return a parameter that is a time in RFC 3339."""
        text = self.parameters.get(name)
        if text is None:
            return None
        try:
            return times.parse_us(text)
        except ValueError:
            message = f"{errors.quoted(text)} is not a time; write it as 2026-12-24T18:00:00Z"
            raise OperationProblem("InvalidParameter", message, field=name) from None

    # -- headers -------------------------------------------------------------------------------

    @property
    def verbs(self) -> tuple[str, ...]:
        """Return the verbs that the caller needs on members of the set."""
        headers, needs = self.request.headers, self.operation.needs
        if self.operation.method != "PUT":
            return needs
        if "if-none-match" in headers:
            return ("create",)
        return ("update",) if "if-match" in headers else needs

    def check_headers(self) -> None:
        """Raise a Problem for a body of another type, and for a condition that would be ignored."""
        headers, operation = self.request.headers, self.operation
        is_change = operation.is_of_set and operation.method != "GET"
        for name in DECIDING if is_change else ():
            if name not in operation.headers and name.lower() in headers:
                taken = ", ".join(operation.headers) or "none"
                message = f"this operation does not take it; it takes {taken}"
                raise OperationProblem("InvalidParameter", message, field=name)
        if headers.get("content-encoding", "identity").lower() != "identity":
            message = "send the body without a content coding"
            raise OperationProblem("UnsupportedMediaType", message, field="Content-Encoding")
        if operation.method in ("GET", "DELETE"):  # no page of another site can send DELETE
            return
        types = operation.body_types or (JSON,)
        if not has_type(headers.get("content-type"), *types):
            message = f"send {' or '.join(types)} in UTF-8, with an empty body too"
            raise OperationProblem("UnsupportedMediaType", message, field="Content-Type")

    @property
    def idempotency_key(self) -> str:
        """Return the idempotency key; empty if there is none."""
        key = self.request.headers.get("idempotency-key")
        if key is None:
            return ""
        if not _KEY.fullmatch(key):
            message = "write 1 to 255 printable characters without a space, such as a UUID"
            raise OperationProblem("InvalidParameter", message, field="Idempotency-Key")
        return key

    def tag(self, name: str) -> str:
        """Return the tag of a condition, or ``*``; empty if there is none."""
        text = self.request.headers.get(name.lower(), "")
        if text in ("", "*"):
            return text
        if (tag := _TAG.fullmatch(text)) is None:
            message = f'{errors.quoted(text)} is not a tag; write it in quotes, such as "1f0a33c2"'
            raise OperationProblem("InvalidParameter", message, field=name)
        return tag[1]

    def safety(self) -> nodes.Safety | None:
        """Return how safely a change must be stored before the answer; None = as usual."""
        text = self.request.headers.get("duepoint-durability")
        if text is None:
            return None
        replicas, on_disk, timeout_ms = 0, False, 1_000
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            number = int(value) if value.isascii() and value.isdigit() and len(value) < 6 else 0
            if name == "aof" and not value:
                on_disk = True
            elif name == "replicas" and 1 <= number <= 9:
                replicas = number
            elif name == "timeout" and 1 <= number <= 10_000:
                timeout_ms = number
            else:
                message = (
                    f"{errors.quoted(part.strip())} is unknown; write replicas=1, aof, or both "
                    "with a comma between, and optionally timeout=500 in milliseconds"
                )
                raise OperationProblem("InvalidParameter", message, field="Duepoint-Durability")
        if not replicas and not on_disk:
            message = "has only a timeout; add replicas=1 or aof"
            raise OperationProblem("InvalidParameter", message, field="Duepoint-Durability")
        return nodes.Safety(replicas=replicas, on_disk=on_disk, timeout_ms=timeout_ms)


#: Names that objects can have.
NAMESPACE_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_NAMESPACE = re.compile(NAMESPACE_PATTERN)
_NAME = re.compile(NAME_PATTERN)


@functools.lru_cache(maxsize=256)
def is_namespace(text: str) -> bool:
    """Whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(text) is not None


@functools.lru_cache(maxsize=256)
def is_object_name(text: str) -> bool:
    """Whether a Schedule or a ScheduleSet can have this name."""
    return _NAME.fullmatch(text) is not None


def parameters_of(query: str, known: Sequence[str]) -> dict[str, str]:
    """Return the query parameters; raises Problem if one is unknown or repeated."""
    found: dict[str, str] = {}
    if not query:
        return found
    try:
        pairs = parse.parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except UnicodeDecodeError:
        raise OperationProblem("InvalidParameter", "the query is not UTF-8") from None
    except ValueError:
        message = f"there are more than {_MOST_PARAMETERS} parameters"
        raise OperationProblem("InvalidParameter", message) from None
    for name, text in pairs:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            message = f"the parameter {errors.quoted(name)} is unknown; this path takes: {listed}"
            raise OperationProblem("InvalidParameter", message, field=name[:60])
        if name in found:
            raise OperationProblem("InvalidParameter", "is there twice", field=name)
        found[name] = text
    return found


def has_type(header: str | None, *types: str) -> bool:
    """Whether a body is of one of these types, in UTF-8.

    False without the header: a page of another site can send plain text, a form or no type, but
    browsers let it send JSON only with our permission.
    """
    if header is None:
        return False
    if header in types:
        return True
    kind, *options = (each.strip().lower() for each in header.split(";"))
    charsets = [each.removeprefix("charset=") for each in options if each.startswith("charset=")]
    return kind in types and all(each.strip('"') in ("utf-8", "utf8") for each in charsets)


def refused_row(error: memberjson.RowError) -> OperationProblem:
    """Return the problem for a row that could not be read."""
    return OperationProblem(error.code, error.detail, field=error.field)


WantedT = TypeVar("WantedT")


def decoded(text: bytes, kind: type[WantedT], shape: str) -> WantedT:
    """Decode a JSON text; raises Problem BadRequest, InvalidField.

    Args:
        shape: what to send instead, such as ``{"ids": ["…"]}``.
    """
    if (problem := jsontext.problem(text)) is not None:
        raise OperationProblem("BadRequest", f"the JSON {problem}")
    try:
        found = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        wrong = checks.of_decoder(error)
        message = f"{wrong.message}; write {shape}"
        raise OperationProblem("InvalidField", message, field=wrong.path.lstrip(".")) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise OperationProblem("BadRequest", f"is not JSON: {error}"[:200]) from None
    for each in checks.problems(found, "") if isinstance(found, Fields) else ():
        raise OperationProblem("InvalidField", each.message, field=each.path.lstrip("."))
    return found
