"""``spec.webhook`` -> a WebhookAction.

Owns the fields of a webhook as users write them and the checks that the CRD cannot make or that
an older schema may have let through. Errors are told to the caller one by one, with the field's
path, and the rest of the spec is still looked at. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from duepoint import errors
from duepoint.expressions import durations
from duepoint.schedules import actions

#: Called with the field's path and what is wrong with it.
Tell = Callable[[str, str], None]

_URL = re.compile(
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[1-9][0-9]{0,4})?([/?][!-~]*)?$"
)
_TOKEN = re.compile(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
_STATUS = re.compile(r"^([1-5]xx|[1-5][0-9]{2}(-[1-5][0-9]{2})?)$")
_MAX_PORT = 65535

# A user's header must not change whom we talk to, how the body is framed, or who signed it.
_FORBIDDEN_HEADERS = frozenset(
    {
        "connection", "content-length", "host", "keep-alive", "proxy-authenticate",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip


class ServiceFields(msgspec.Struct, rename="camel"):
    name: str
    port: int | str | None = None
    path: str | None = None
    scheme: str | None = None


class HeaderFields(msgspec.Struct, rename="camel"):
    name: str
    value: str | None = None
    value_from: dict[str, Any] | None = None


class RetryFields(msgspec.Struct, rename="camel"):
    max_attempts: int | None = None
    initial_backoff: str | None = None
    max_backoff: str | None = None
    max_age: str | None = None
    retry_on: tuple[str, ...] | None = None


class WebhookFields(msgspec.Struct, rename="camel"):
    """``spec.webhook`` as the API server sends it."""

    url: str | None = None
    service: ServiceFields | None = None
    method: str | None = None
    format: str | None = None
    headers: tuple[HeaderFields, ...] | None = None
    signing: dict[str, Any] | None = None
    auth: dict[str, Any] | None = None
    tls: dict[str, Any] | None = None
    timeout_seconds: int | None = None
    success: tuple[str, ...] | None = None
    retry: RetryFields | None = None


def action(fields: WebhookFields, tell: Tell) -> actions.WebhookAction:
    """The action behind the fields; what is wrong is told, and a harmless value stands in."""
    _refuse_unavailable(fields, tell)
    if (fields.url is None) == (fields.service is None):
        tell("spec.webhook", "write exactly one of url and service")
    if fields.url is not None:
        _check_url(fields.url, tell)
    return actions.WebhookAction(
        url=fields.url,
        service=None if fields.service is None else _service(fields.service),
        method=fields.method or "POST",
        format=fields.format or "Standard",
        headers=_headers(fields.headers or (), tell),
        timeout_seconds=_timeout(fields.timeout_seconds, tell),
        success=_statuses(fields.success or ("2xx",), (), "spec.webhook.success", tell),
        retry=_retry(fields.retry or RetryFields(), tell),
    )


def _refuse_unavailable(fields: WebhookFields, tell: Tell) -> None:
    """What this version cannot do is refused: a signature left out in silence is a hole."""
    for name in ("signing", "auth", "tls"):
        if getattr(fields, name) is not None:
            tell(f"spec.webhook.{name}", "is not available in this version; remove it")
    if fields.format not in (None, "Standard", "Raw"):
        tell(
            "spec.webhook.format",
            f"{errors.quoted(fields.format)} is not available in this version; "
            "write Standard or Raw",
        )


def _check_url(url: str, tell: Tell) -> None:
    if not _URL.match(url) or "#" in url:
        tell(
            "spec.webhook.url",
            f"{errors.quoted(url)} is no URL to call; write http://host:port/path or https://..., "
            "without user names and fragments",
        )
        return
    port = url.split("://", 1)[1].split("/", 1)[0].split("?", 1)[0].rpartition(":")[2]
    if port.isdigit() and int(port) > _MAX_PORT:
        tell("spec.webhook.url", f"port {port} is out of range; write 1 to {_MAX_PORT}")


def _service(fields: ServiceFields) -> actions.ServiceRef:
    scheme = fields.scheme or "http"
    usual = 443 if scheme == "https" else 80
    return actions.ServiceRef(
        name=fields.name,
        port=usual if fields.port is None else fields.port,
        path=fields.path or "/",
        scheme=scheme,
    )


def _headers(headers: tuple[HeaderFields, ...], tell: Tell) -> tuple[actions.Header, ...]:
    for index, header in enumerate(headers):
        trouble = _header_trouble(header)
        if trouble:
            tell(f"spec.webhook.headers[{index}]", trouble)
    return tuple(actions.Header(name=one.name, value=one.value or "") for one in headers)


def _header_trouble(header: HeaderFields) -> str:
    name = header.name.lower()
    if header.value_from is not None:
        return "valueFrom is not available in this version; write value"
    if not _TOKEN.match(header.name):
        return f"{errors.quoted(header.name)} is no header name"
    if name in _FORBIDDEN_HEADERS or name.startswith("webhook-"):
        return f"{errors.quoted(header.name)} is set by Duepoint; remove it"
    if header.value is None or any(ord(char) < ord(" ") and char != "\t" for char in header.value):
        return f"the value of {errors.quoted(header.name)} is missing or has control characters"
    return ""


def _timeout(seconds: int | None, tell: Tell) -> int:
    if seconds is not None and not 1 <= seconds <= 300:
        tell("spec.webhook.timeoutSeconds", f"{seconds} is out of range; write 1 to 300")
    return 30 if seconds is None else seconds


def _statuses(
    entries: tuple[str, ...], words: tuple[str, ...], path: str, tell: Tell
) -> tuple[str, ...]:
    for index, entry in enumerate(entries):
        if entry not in words and not _STATUS.match(entry):
            tell(
                f"{path}[{index}]",
                f'{errors.quoted(entry)} is no status; write "204", "200-299" or "2xx"',
            )
    return entries


def _retry(fields: RetryFields, tell: Tell) -> actions.RetryRule:
    usual = actions.RetryRule()
    if fields.max_attempts is not None and fields.max_attempts < 1:
        tell("spec.webhook.retry.maxAttempts", f"{fields.max_attempts} is too small; write 1")
    return actions.RetryRule(
        max_attempts=fields.max_attempts or usual.max_attempts,
        initial_backoff_us=_duration(
            fields.initial_backoff, "initialBackoff", usual.initial_backoff_us, tell
        ),
        max_backoff_us=_duration(fields.max_backoff, "maxBackoff", usual.max_backoff_us, tell),
        max_age_us=_duration(fields.max_age, "maxAge", usual.max_age_us, tell),
        retry_on=_statuses(
            usual.retry_on if fields.retry_on is None else fields.retry_on,
            ("network",),
            "spec.webhook.retry.retryOn",
            tell,
        ),
    )


def _duration(text: str | None, name: str, usual: int, tell: Tell) -> int:
    if text is None:
        return usual
    try:
        return durations.parse_duration_us(text)
    except ValueError as error:
        tell(f"spec.webhook.retry.{name}", str(error))
        return usual
