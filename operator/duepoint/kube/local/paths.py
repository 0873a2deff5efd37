"""Which object a request path names, and the refusals that an API server answers with.

Only the API groups that Duepoint uses are served; any other path is a 404, as for a resource that
no CRD defines.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint.kube import errors, schedules

_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<api>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>status|token))?)?$"
)
_GROUPS = {
    None,
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    schedules.GROUP,
}
#: Fields that a list may be narrowed to, beside those of every object.
_SELECTABLE = {"events": frozenset({"regarding.uid", "reason"})}
_ALWAYS_SELECTABLE = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedObject:
    """What a path names.

    Attributes:
        attempt: the request, for messages.
        namespace: empty = all of them, or a resource that has none.
        name: empty = all objects.
        subresource: ``status``, ``token`` or empty.
    """

    attempt: str
    resource: str
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.resource, self.namespace, self.name


def parse(verb: str, path: str) -> NamedObject:
    """The object or collection of a path; raises errors.NotFound for one that is not served."""
    attempt = f"{verb} {path}"
    parts = _PATH.match(path)
    if parts is None or parts["group"] not in _GROUPS:
        raise errors.from_answer(attempt, 404, {}, b"404 page not found")
    named = {key: urllib.parse.unquote(parts[key] or "") for key in ("namespace", "name")}
    return NamedObject(
        attempt=attempt,
        resource=parts["resource"],
        subresource=parts["subresource"] or "",
        **named,
    )


def fields_of(target: NamedObject, query: Mapping[str, str]) -> dict[str, str]:
    """The field selector as path -> text; raises errors.Invalid for a field without an index."""
    wanted = {}
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, text = part.partition("=")
        if path not in _ALWAYS_SELECTABLE | _SELECTABLE.get(target.resource, frozenset()):
            raise refusal(target, 400, "BadRequest", f'field label not supported: "{path}"')
        wanted[path] = text.removeprefix("=")
    return wanted


def refusal(
    target: NamedObject,
    code: int,
    reason: str,
    message: str,
    causes: list[dict[str, Any]] | None = None,
) -> errors.ApiError:
    """The error of an answer with this status code and this ``Status`` object."""
    status = {"code": code, "reason": reason, "message": message, "details": {"causes": causes}}
    return errors.from_answer(target.attempt, code, {}, msgspec.json.encode(status))


def not_found(target: NamedObject) -> errors.ApiError:
    """The error for a name that no object has."""
    message = f'{target.resource} "{target.name}" not found'
    return refusal(target, 404, "NotFound", message)
