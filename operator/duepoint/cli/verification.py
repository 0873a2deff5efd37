"""``duepoint webhook verify``: is this request signed with this secret, and if not, why not.

A request is taken as people capture it: the bytes of HTTP/1.1, headers and body in files of their
own, or the JSON that ``test --dry-run -o json`` prints. The body is taken byte for byte, because
every byte of it is signed. A secret that cannot be used is named by its option and never repeated.

The judge is the check that every receiver makes: the three headers, the time, one matching entry
of the signature. What is added is the usual reasons of a mismatch, tried out: a body with a line
break too many, a body that was parsed and printed again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.schedules import jsontext
from duepoint.targets.webhook import signing


class Captured(NamedTuple):
    """A request as a receiver got it; names of headers in lower case."""

    headers: Mapping[str, str]
    body: bytes


def verifiers(
    literal: tuple[str, ...], files: tuple[str, ...]
) -> tuple[signing.Hmac | signing.Ed25519, ...]:
    """What may have signed; raises errors.InvalidSetting."""
    given = [("--secret", text) for text in literal]
    given += [("--secret-file", options.text("--secret-file", file)) for file in files]
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
    if headers is None:
        if body is not None:
            raise errors.InvalidSetting("--headers", "is missing beside --body")
        return _whole("--request", options.content("--request", whole or "-"))
    return Captured(
        _headers("--headers", options.content("--headers", headers)),
        b"" if body is None else options.content("--body", body),
    )


def _whole(option: str, data: bytes) -> Captured:
    if data.lstrip().startswith(b"{"):
        try:
            printed = json.loads(jsontext.clipped(data))
            body = str(printed.get("body") or "").encode()
            return Captured(_lower(printed["headers"]), body)
        except (ValueError, KeyError, AttributeError, TypeError):
            raise errors.InvalidSetting(
                option, 'is JSON of another form; write {"headers": {...}, "body": "..."}'
            ) from None
    for ending in (b"\r\n\r\n", b"\n\n"):
        head, found, content = data.partition(ending)
        if found:
            return Captured(_headers(option, head), content)
    return Captured(_headers(option, data), b"")


def _headers(option: str, data: bytes) -> dict[str, str]:
    if data.lstrip().startswith(b"{"):
        try:
            return _lower(json.loads(jsontext.clipped(data)))
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


_WANTED = ("webhook-id", "webhook-timestamp", "webhook-signature")
#: Longest time in seconds that is looked at; more digits are no time.
_MOST_OF_NAME = 40
_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureVerdict:
    """Whether a request is signed with one of the secrets, and if not, why.

    Attributes:
        secret: which of the given secrets signed it, from 1; 0 = none.
        reason: why it is not valid; empty where it is.
    """

    webhook_id: str = ""
    sent_us: int | None = None
    secret: int = 0
    reason: str = ""

    @property
    def is_valid(self) -> bool:
        return not self.reason


def judge(
    captured: Captured,
    verifiers: Sequence[signing.Signer],
    *,
    tolerance_us: int,
    at_us: int,
) -> SignatureVerdict:
    """The verdict; ``tolerance_us`` 0 leaves the time alone."""
    missing = [name for name in _WANTED if not captured.headers.get(name)]
    if missing:
        found = ", ".join(name[:_MOST_OF_NAME] for name in sorted(captured.headers)[:20]) or "none"
        return SignatureVerdict(reason=f"header {missing[0]} is missing; headers found: {found}")
    webhook_id, timestamp, signature = (captured.headers[name] for name in _WANTED)
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MOST_DIGITS):
        reason = f"webhook-timestamp {errors.quoted(timestamp)} is no time in whole seconds"
        return SignatureVerdict(webhook_id=webhook_id, reason=reason)
    sent_us = int(timestamp) * 1_000_000
    content = signing.signed_content(webhook_id, timestamp, captured.body)
    secret = _signed_by(verifiers, content, signature)
    if not secret:
        reason = _why_not(captured.body, verifiers, webhook_id, timestamp, signature)
    elif tolerance_us and abs(late_us := at_us - sent_us) > tolerance_us:
        side = "before" if late_us > 0 else "after"
        reason = (
            f"the signature is right, but it was sent {abs(late_us) // 1_000_000} s {side} the "
            f"time it is checked for ({instants.utc_text(sent_us)}); write --at TIME for a request "
            "of the past"
        )
    else:
        reason = ""
    return SignatureVerdict(webhook_id=webhook_id, sent_us=sent_us, secret=secret, reason=reason)


def _signed_by(verifiers: Sequence[signing.Signer], content: bytes, signature: str) -> int:
    entries = signature.split()
    for number, verifier in enumerate(verifiers, start=1):
        if any(verifier.accepts(content, entry) for entry in entries):
            return number
    return 0


def _why_not(
    body: bytes,
    verifiers: Sequence[signing.Signer],
    webhook_id: str,
    timestamp: str,
    signature: str,
) -> str:
    """The usual reasons, tried out; else that another secret signed it, or it was changed."""
    others = [
        (body.removesuffix(b"\n"), "it ends in a line break that was not sent"),
        (body.removesuffix(b"\r\n"), "it ends in a line break that was not sent"),
        (body + b"\n", "the line break at its end is missing"),
        (b"", "the request was sent without a body"),
    ]
    with contextlib.suppress(ValueError):
        parsed = json.loads(jsontext.clipped(body))  # nothing that deep was sent
        compact = json.dumps(parsed, separators=(",", ":"), ensure_ascii=False).encode()
        why = "it was parsed and printed anew; sign and verify the bytes as they came"
        others.append((compact, why))
    for tried, why in others:
        content = signing.signed_content(webhook_id, timestamp, tried)
        if _signed_by(verifiers, content, signature):
            return f"the signature does not match this body: {why}"
    versions = {entry.partition(",")[0] for entry in signature.split()}
    listed = ", ".join(sorted(version for version in versions if version.isalnum())[:4])
    return (
        f"no entry of webhook-signature ({listed or 'none of a known form'}) matches: another "
        "secret signed it, or id, time or body were changed on the way"
    )


def show(verdict: SignatureVerdict, form: str) -> None:
    """Print the verdict."""
    sent = "" if verdict.sent_us is None else instants.utc_text(verdict.sent_us)
    if output.is_data(form):
        row = {
            "valid": verdict.is_valid,
            "webhookId": verdict.webhook_id,
            "sentAt": sent,
            "secret": verdict.secret or None,
            "reason": verdict.reason,
        }
        output.write([row], form)
    elif verdict.is_valid:
        output.say(f"valid: {verdict.webhook_id}, sent {sent}, signed with secret {verdict.secret}")
    else:
        output.complain(f"not valid: {verdict.reason}")
