"""The CRD's rules (CEL) without a CEL engine: each one as a check of a plain value.

Most rules are one pattern, one list of words, or say which fields of an object go together, and are
read off their text. The others stand in a table here, by their text, so that a rule that is added
to the CRD and not here is a failing test and not a manifest wrongly called valid. Values come
without nulls, as ``has()`` wants them. Rules run in Python's ``re`` what the API server runs in
RE2; the patterns mean the same in both.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from duepoint.cli import instants

Check = Callable[[Any], bool]

_PATTERN = re.compile(r"""(?P<no>!?)self\.matches\(r(?P<quote>['"])(?P<pattern>.*)(?P=quote)\)""")
_HAS = re.compile(r"has\(self\.(\w+)\)")
#: Exactly one of these fields is there.
_ONE_OF = re.compile(
    r"\[has\(self\.\w+\)(?:, has\(self\.\w+\))+\]\.filter\(written, written\)\.size\(\) == 1"
    r"|has\(self\.\w+\) != has\(self\.\w+\)"
)
#: Where the first field is there (always, where none is named), the second is, with such a value.
_NEEDS = re.compile(
    r"(?:!has\(self\.(?P<field>\w+)\) \|\| )?has\(self\.(?P<needed>\w+)\)"
    r"(?: && self\.(?P=needed) (?:== (?P<value>'\w+')|in \[(?P<values>[^]]*)\]))?"
)
_WORDS = re.compile(r"self in \[(?P<words>'[^']*'(?:, '[^']*')*)\]")


@functools.cache
def check(rule: str) -> Check:
    """What the rule's text asks of a value; raises KeyError where no form or row of it is known."""
    if rule in _TABLE:
        return _TABLE[rule]
    if (parts := _PATTERN.fullmatch(rule)) and "self." not in parts["pattern"]:
        return _matching(parts["pattern"], wanted=not parts["no"])
    if _WORDS.fullmatch(rule):
        return lambda value: value in words(rule)
    if _ONE_OF.fullmatch(rule):
        fields = _HAS.findall(rule)
        return lambda value: sum(field in value for field in fields) == 1
    if parts := _NEEDS.fullmatch(rule):
        field, needed = parts["field"], parts["needed"]
        known = re.findall(r"'(\w+)'", parts["value"] or parts["values"] or "")
        return lambda value: (
            (field is not None and field not in value)
            or (value.get(needed) in known if known else needed in value)
        )
    raise KeyError(rule)


@functools.cache
def words(rule: str) -> list[str]:
    """The words that a rule of one list takes; none where it is of another form."""
    parts = _WORDS.fullmatch(rule)
    return re.findall(r"'([^']*)'", parts["words"]) if parts else []


@functools.cache
def _matching(pattern: str, *, wanted: bool = True) -> Check:
    # In RE2 $ is the very end; in re it also stands before a last line break.
    spelled = pattern.replace("[[]", r"\[").replace("[]]", r"\]")
    spelled = re.sub(r"\$(?=$|\))", r"\\Z", spelled)
    compiled = re.compile(spelled, re.ASCII)
    return lambda value: (compiled.search(value) is not None) is wanted


def _earlier(first: str, last: str) -> Check:
    """Holds where either is missing, or is no time at all: that is a problem of its own."""

    def holds(value: Any) -> bool:  # noqa: ANN401 - any JSON
        try:
            ends = [instants.strict_us(value[name]) for name in (first, last)]
        except (KeyError, ValueError):
            return True
        return ends[0] < ends[1]

    return holds


def _mapping(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return value if isinstance(value, dict) else {}


_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_THE_CONNECTION = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
        "upgrade", "proxy-connection", "proxy-authenticate", "proxy-authorization", "expect",
    }
)  # fmt: skip

_TABLE: dict[str, Check] = {
    "!has(self.startTime) || !has(self.endTime) || self.startTime < self.endTime": _earlier(
        "startTime", "endTime"
    ),
    "self.from < self.to": _earlier("from", "to"),
    "!has(self.manualSelector) || !self.manualSelector": lambda job: (
        job.get("manualSelector") is not True
    ),
    "!has(self.selector)": lambda job: "selector" not in job,
    "!has(self.completionMode) || self.completionMode != 'Indexed' || has(self.completions)": (
        lambda job: job.get("completionMode") != "Indexed" or "completions" in job
    ),
    "!has(self.auth) || !has(self.headers)"
    " || self.headers.all(header, header.name.lowerAscii() != 'authorization')": lambda hook: (
        "auth" not in hook
        or all(
            header.get("name", "").lower() != "authorization" for header in hook.get("headers", ())
        )
    ),
    "!has(self.value)"
    " || !(self.name.lowerAscii() in ['authorization', 'cookie', 'proxy-authorization'])": (
        lambda header: "value" not in header or header.get("name", "").lower() not in _CREDENTIALS
    ),
    "!has(self.jobTemplate) || has(self.jobTemplate.spec.ttlSecondsAfterFinished)": lambda spec: (
        "jobTemplate" not in spec
        or "ttlSecondsAfterFinished" in _mapping(_mapping(spec["jobTemplate"]).get("spec"))
    ),
    "!has(self.jobTemplate) || !has(self.defaults) || !has(self.defaults.concurrencyPolicy)"
    " || self.defaults.concurrencyPolicy != 'Forbid'": lambda spec: (
        "jobTemplate" not in spec
        or _mapping(spec.get("defaults")).get("concurrencyPolicy") != "Forbid"
    ),
    "!(self.lowerAscii() in ['host', 'content-length', 'transfer-encoding', 'connection',"
    " 'keep-alive', 'te', 'trailer', 'upgrade', 'proxy-connection', 'proxy-authenticate',"
    " 'proxy-authorization', 'expect']) && !self.matches(r'^(?i:webhook-)')": lambda name: (
        name.lower() not in _OF_THE_CONNECTION and not name.lower().startswith("webhook-")
    ),
    "self.matches(r'^[A-Za-z0-9._-]+$') && !(self in ['.', '..'])": lambda text: (
        _matching("^[A-Za-z0-9._-]+$")(text) and text not in {".", ".."}
    ),
    "!self.contains('#')": lambda text: "#" not in text,
    "self.matches(r'^/[!-~]*$') && !self.contains('#')": lambda text: (
        _matching("^/[!-~]*$")(text) and "#" not in text
    ),
    "type(self) == int ? self >= 1 && self <= 65535"
    " : self.matches(r'^[a-z0-9-]*[a-z][a-z0-9-]*$')": lambda port: (
        1 <= port <= 65535
        if isinstance(port, int)
        else re.fullmatch("[a-z0-9-]*[a-z][a-z0-9-]*", port) is not None
    ),
    "!self.matches(r'^[0-9]{3}-[0-9]{3}$') || self.substring(0, 3) <= self.substring(4, 7)": (
        lambda value: "-" not in value or value.partition("-")[0] <= value.partition("-")[2]
    ),
}
