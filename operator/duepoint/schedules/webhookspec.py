"""``spec.webhook`` -> a WebhookAction.

Owns the fields of a webhook as users write them and the checks that the CRD cannot make or that
an older schema may have let through. Errors are told to the caller one by one, with the field's
path, and the rest of the spec is still looked at. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

import msgspec

from duepoint import errors
from duepoint.expressions import durations
from duepoint.schedules import actions, webhooksecrets

#: Called with the field's path and what is wrong with it.
Tell = Callable[[str, str], None]

#: For ``fullmatch``: ``$`` would let a line end behind them through.
_URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[1-9][0-9]{0,4})?([/?][!-~]*)?")
_HOST_END = re.compile(r"[/?#\\\s]")
#: As the API server and DNS have it.
_SERVICE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9-]{1,15}")
_PATH = re.compile(r"/[!-~]{0,2047}")
_STATUS = re.compile(r"[1-5]xx|[1-5][0-9]{2}(-[1-5][0-9]{2})?")
_MAX_PORT = 65535
_METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")
_CLOUD_EVENTS = ("CloudEventsBinary", "CloudEventsStructured")
_FORMATS = ("Standard", *_CLOUD_EVENTS, "Raw")


class ServiceFields(msgspec.Struct, rename="camel"):
    name: str
    port: int | str | None = None
    path: str | None = None
    scheme: str | None = None


class RetryFields(msgspec.Struct, rename="camel"):
    max_attempts: int | None = None
    initial_backoff: str | None = None
    max_backoff: str | None = None
    max_age: str | None = None
    retry_on: tuple[str, ...] | None = None


class WebhookFields(msgspec.Struct, rename="camel"):
    """``spec.webhook`` as the API server sends it."""

    url: str | None = None
    url_from: webhooksecrets.ValueFromFields | None = None
    service: ServiceFields | None = None
    method: str | None = None
    format: str | None = None
    headers: tuple[webhooksecrets.HeaderFields, ...] | None = None
    signing: webhooksecrets.SigningFields | None = None
    auth: webhooksecrets.AuthFields | None = None
    tls: webhooksecrets.TlsFields | None = None
    timeout_seconds: int | None = None
    success: tuple[str, ...] | None = None
    retry: RetryFields | None = None


def action(fields: WebhookFields, tell: Tell) -> actions.WebhookAction:
    """The action behind the fields; what is wrong is told, and a harmless value stands in."""
    if sum(one is not None for one in (fields.url, fields.url_from, fields.service)) != 1:
        tell("spec.webhook", "write exactly one of url, urlFrom and service")
    if fields.url is not None:
        _check_url(fields.url, tell)
    method, form = fields.method or "POST", fields.format or "Standard"
    _check_format(method, form, tell)
    _check_tls(fields, tell)
    return actions.WebhookAction(
        url=fields.url,
        url_secret=webhooksecrets.url(fields.url_from, tell),
        service=None if fields.service is None else _service(fields.service, tell),
        method=method,
        format=form,
        headers=webhooksecrets.headers(
            fields.headers or (),
            form if form in _CLOUD_EVENTS else "",
            authorized=fields.auth is not None,
            tell=tell,
        ),
        timeout_seconds=_timeout(fields.timeout_seconds, tell),
        success=_statuses(fields.success or ("2xx",), (), "spec.webhook.success", tell),
        retry=_retry(fields.retry or RetryFields(), tell),
        signing=webhooksecrets.signing(fields.signing, tell),
        auth=webhooksecrets.auth(fields.auth, tell),
        tls=webhooksecrets.tls(fields.tls, tell),
    )


def _check_format(method: str, form: str, tell: Tell) -> None:
    if method not in _METHODS:
        tell("spec.webhook.method", f"{errors.quoted(method)}: write one of {', '.join(_METHODS)}")
    if form not in _FORMATS:
        tell("spec.webhook.format", f"{errors.quoted(form)}: write one of {', '.join(_FORMATS)}")
    if method == "GET" and form == "CloudEventsStructured":
        tell(
            "spec.webhook.format",
            "CloudEventsStructured is a body, and GET has none; write method POST, or format "
            "CloudEventsBinary",
        )


def _check_tls(fields: WebhookFields, tell: Tell) -> None:
    """Plain http with rules for certificates would look safe and not be."""
    if fields.tls is None:
        return
    if fields.url is not None and fields.url.startswith("http:"):
        tell("spec.webhook.tls", "the URL is plain http; write https://, or remove tls")
    if fields.service is not None and fields.service.scheme != "https":
        tell("spec.webhook.tls", "needs spec.webhook.service.scheme: https")


def _check_url(url: str, tell: Tell) -> None:
    if trouble := url_trouble(url):
        tell("spec.webhook.url", f"{errors.quoted(shown(url))} {trouble}")


def shown(url: str) -> str:
    """Its scheme and host alone.

    A login, a path or a query may be a credential, and Events are read by people who may not read
    Schedules.
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        rest, scheme = url, ""
    host = _HOST_END.split(rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}{slashes}{host}" + "/…" * (len(host) < len(rest))


def url_trouble(url: str) -> str:
    """What is wrong with a URL, without repeating it; empty where it can be called."""
    found = _URL.fullmatch(url)
    if found is None or "#" in url or not _is_host(found[1]):
        return (
            "is no URL to call; write http://host:port/path or https://..., without user names and "
            "fragments"
        )
    port = url.split("://", 1)[1].split("/", 1)[0].split("?", 1)[0].rpartition(":")[2]
    is_too_large = port.isdigit() and int(port) > _MAX_PORT
    return f"has a port that is out of range; write 1 to {_MAX_PORT}" * is_too_large


def _is_host(text: str) -> bool:
    """Whether what stands in brackets is an address (RFC 3986, 3.2.2); any other name may be."""
    if not text.startswith("["):
        return True
    try:
        ipaddress.IPv6Address(text[1:-1])
    except ValueError:
        return False
    return True


def _service(fields: ServiceFields, tell: Tell) -> actions.ServiceRef:
    """The path is put behind a host: anything but a path could turn it into another host."""
    scheme = fields.scheme or "http"
    at = "spec.webhook.service"
    if not _SERVICE_NAME.fullmatch(fields.name):
        tell(f"{at}.name", f"{errors.quoted(fields.name)} is no name of a Service; write billing")
    if fields.path is not None and (not _PATH.fullmatch(fields.path) or "#" in fields.path):
        tell(
            f"{at}.path",
            f"{errors.quoted(fields.path)} is no path; write /hooks/run, with %20 for a blank and "
            "without #",
        )
    if scheme not in ("http", "https"):
        tell(f"{at}.scheme", f"{errors.quoted(scheme)}: write http or https")
    _check_service_port(fields.port, tell)
    usual = 443 if scheme == "https" else 80
    return actions.ServiceRef(
        name=fields.name,
        port=usual if fields.port is None else fields.port,
        path=fields.path or "/",
        scheme=scheme,
    )


def _check_service_port(port: int | str | None, tell: Tell) -> None:
    is_name = isinstance(port, str) and bool(_PORT_NAME.fullmatch(port))
    is_number = isinstance(port, int) and 1 <= port <= _MAX_PORT
    if port is not None and not (is_name or is_number):
        tell(
            "spec.webhook.service.port",
            f"{errors.quoted(str(port))} is no port; write 1 to {_MAX_PORT}, or its name",
        )


def _timeout(seconds: int | None, tell: Tell) -> int:
    if seconds is not None and not 1 <= seconds <= 300:
        tell("spec.webhook.timeoutSeconds", f"{seconds} is out of range; write 1 to 300")
    return 30 if seconds is None else seconds


def _statuses(
    entries: tuple[str, ...], words: tuple[str, ...], path: str, tell: Tell
) -> tuple[str, ...]:
    for index, entry in enumerate(entries):
        if entry not in words and not _STATUS.fullmatch(entry):
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
