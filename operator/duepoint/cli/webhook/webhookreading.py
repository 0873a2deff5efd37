"""Options and files of ``duepoint webhook`` to values: secrets, captured requests.

A secret that cannot be used is told by the option it came with and never repeated. A request is
taken as people capture it: the bytes of HTTP/1.1, headers and body in files of their own, or the
JSON that ``test --dry-run -o json`` prints. The body is taken byte for byte, because every byte of
it is signed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from duepoint import errors
from duepoint.cli.check import manifests
from duepoint.expressions import durations
from duepoint.schedules import nesting
from duepoint.targets.webhook import signing

#: Keys by the name of the Secret or ConfigMap.
Objects = Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A request that somebody received; names of headers in lower case."""

    headers: Mapping[str, str]
    body: bytes


def objects(literal: tuple[str, ...], files: tuple[str, ...]) -> Objects:
    """What ``--secret`` and ``--secret-file`` say together; raises errors.InvalidSetting."""
    found: dict[str, dict[str, bytes]] = {}
    for text in literal:
        name, key, value = _assigned("--secret", text)
        found.setdefault(name, {})[key] = value.encode()
    for text in files:
        name, key, path = _assigned("--secret-file", text)
        found.setdefault(name, {})[key] = content("--secret-file", path)
    return found


def _assigned(option: str, text: str) -> tuple[str, str, str]:
    named, equals, value = text.partition("=")
    name, slash, key = named.partition("/")
    if not (equals and slash and name and key):
        # Not quoted: it may be the secret itself.
        raise errors.InvalidSetting(option, "write NAME/KEY=..., such as billing-hook/secret=...")
    return name, key, value


def text(option: str, file: str) -> str:
    """A file's text without the blanks around it; raises errors.InvalidSetting."""
    try:
        return content(option, file).decode().strip()
    except UnicodeDecodeError:
        raise errors.InvalidSetting(option, f"{errors.quoted(file)} is not text") from None


def content(option: str, file: str) -> bytes:
    """A file's bytes, ``-`` being standard input; raises errors.InvalidSetting."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(manifests.LARGEST_FILE + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(manifests.LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise errors.InvalidSetting(option, f"{errors.quoted(file)}: {reason}") from None
    if len(data) > manifests.LARGEST_FILE:
        raise errors.InvalidSetting(option, f"{errors.quoted(file)} is larger than 32 MiB")
    return data


def duration_us(option: str, given: str) -> int:
    """A length of time; raises errors.InvalidSetting."""
    try:
        return durations.parse_duration_us(given)
    except ValueError as error:
        raise errors.InvalidSetting(option, str(error)) from None


def verifiers(
    literal: tuple[str, ...], files: tuple[str, ...]
) -> tuple[signing.Hmac | signing.Ed25519, ...]:
    """What may have signed; raises errors.InvalidSetting."""
    given = [("--secret", one) for one in literal]
    given += [("--secret-file", text("--secret-file", one)) for one in files]
    if not given:
        raise errors.InvalidSetting("--secret", "is missing; write --secret-file FILE")
    made = []
    for option, secret in given:
        try:
            made.append(signing.verifier(secret))
        except ValueError as error:
            raise errors.InvalidSetting(option, f"the secret {error}") from None
    return tuple(made)


# -- captured requests ---------------------------------------------------------------------------


def request(whole: str | None, headers: str | None, body: str | None) -> Captured:
    """The request in one file, or in two; raises errors.InvalidSetting."""
    if whole is not None and (headers is not None or body is not None):
        raise errors.InvalidSetting("--request", "stands for --headers and --body; leave it out")
    if headers is None and body is None:
        return _whole("--request", content("--request", whole or "-"))
    if headers is None:
        raise errors.InvalidSetting("--headers", "is missing beside --body")
    return Captured(
        headers=_headers("--headers", content("--headers", headers)),
        body=b"" if body is None else content("--body", body),
    )


def _whole(option: str, data: bytes) -> Captured:
    if data.lstrip().startswith(b"{"):
        return _printed(option, data)
    for ending in (b"\r\n\r\n", b"\n\n"):
        head, found, body = data.partition(ending)
        if found:
            return Captured(headers=_headers(option, head), body=body)
    return Captured(headers=_headers(option, data), body=b"")


def _printed(option: str, data: bytes) -> Captured:
    try:
        printed = json.loads(nesting.clipped(data))
        headers, body = printed["headers"], printed.get("body") or ""
        return Captured(headers=_lower(headers), body=str(body).encode())
    except (ValueError, KeyError, AttributeError, TypeError):
        raise errors.InvalidSetting(
            option, 'is JSON of another form; write {"headers": {...}, "body": "..."}'
        ) from None


def _headers(option: str, data: bytes) -> dict[str, str]:
    if data.lstrip().startswith(b"{"):
        try:
            return _lower(json.loads(nesting.clipped(data)))
        except (ValueError, AttributeError):
            raise errors.InvalidSetting(option, "is no JSON object of headers") from None
    lines = data.decode("latin-1").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _lower(headers: Mapping[str, object]) -> dict[str, str]:
    """Some servers hand out a list for each name."""
    return {
        name.lower(): str(value[0] if isinstance(value, list) and value else value)
        for name, value in headers.items()
    }
