"""The HTTP request of one attempt: method, headers and body, as they go out.

Owns the four formats and the order of precedence of headers: what says which delivery this is and
who signed it is ours alone; what describes the body is the user's to replace where the format does
not depend on it. The signature covers the bytes that are sent, so it is made here, last. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duepoint
from duepoint import errors
from duepoint.schedules import actions
from duepoint.targets import eventids, target
from duepoint.targets.webhook import credentials, signing

_CONTENT_TYPE = ("content-type", "application/json")
_USUAL = (("accept", "*/*"), ("user-agent", f"duepoint/{duepoint.__version__}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent in one attempt; ``body`` None = none at all."""

    method: str
    headers: list[tuple[str, str]] = field(repr=False)
    body: bytes | None


def compose(
    firing: target.Firing,
    webhook: actions.WebhookAction,
    kept: credentials.WebhookCredentials | None,
    now_us: int,
) -> Request:
    """The request of an attempt made now.

    Args:
        firing: the attempt.
        webhook: its action's target.
        kept: what was read for it; None for a webhook that is plain.
        now_us: the attempt's time.
    """
    usual, body = _content(firing, webhook, now_us)
    has_body = webhook.method != "GET"
    if has_body and body and webhook.format != "CloudEventsStructured":
        usual.append(_CONTENT_TYPE)
    headers = _headers(usual, webhook, kept)
    webhook_id = eventids.webhook_id(firing.uid, firing.slot_us, firing.run_uid)
    timestamp = str(now_us // 1_000_000)
    headers += [("webhook-id", webhook_id), ("webhook-timestamp", timestamp)]
    if kept is not None and kept.signers:
        signed = body if has_body else b""
        value = signing.header(kept.signers, webhook_id, timestamp, signed)
        headers.append(("webhook-signature", value))
    return Request(method=webhook.method, headers=headers, body=body if has_body else None)


def _content(
    firing: target.Firing, webhook: actions.WebhookAction, now_us: int
) -> tuple[list[tuple[str, str]], bytes]:
    """The usual headers, with the format's own, and the body."""
    match webhook.format:
        case "Standard":
            return [*_USUAL], eventids.standard_body(firing, now_us)
        case "Raw":
            return [*_USUAL], eventids.raw_body(firing)
        case "CloudEventsBinary":
            headers, body = eventids.binary_event(firing, now_us)
            return [*_USUAL, *headers], body
        case "CloudEventsStructured":
            content_type = ("content-type", eventids.STRUCTURED_CONTENT_TYPE)
            return [*_USUAL, content_type], eventids.structured_event(firing, now_us)
        case unknown:
            raise errors.Bug(f"a webhook of format {unknown} was accepted")


def _headers(
    usual: list[tuple[str, str]],
    webhook: actions.WebhookAction,
    kept: credentials.WebhookCredentials | None,
) -> list[tuple[str, str]]:
    """The user's headers replace the usual ones."""
    if kept is not None:
        theirs = kept.headers
    else:
        theirs = tuple((header.name, header.value) for header in webhook.headers)
    if not theirs:
        return usual
    taken = {name.lower() for name, _ in theirs}
    return [*(pair for pair in usual if pair[0] not in taken), *theirs]
