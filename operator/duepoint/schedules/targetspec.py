"""The target of a spec: ``jobTemplate``, ``webhook``, ``stream`` or ``kafka`` -> an action.

Owns the fields of the targets as users write them and the checks that the CRD cannot make or that
an older schema may have let through. Errors are reported to the caller one by one, with the field's
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

TEMPLATE_LIMIT_BYTES = 256 * 1024

#: Called with the field's path and what is wrong with it.
Report = Callable[[str, str], None]

_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_STREAM = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/:-]*[A-Za-z0-9])?")
_MOST_STREAM_NAME = 200
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

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


class StreamFields(msgspec.Struct, rename="camel"):
    name: str
    max_length: int | None = None
    connection_secret_ref: webhooksecrets.NameFields | None = None


class KafkaFields(msgspec.Struct, rename="camel"):
    topic: str
    connection_secret_ref: webhooksecrets.NameFields


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


def webhook(fields: WebhookFields, report: Report) -> actions.WebhookAction:
    """The action behind the fields; what is wrong is reported, and a harmless value stands in."""
    if sum(field is not None for field in (fields.url, fields.url_from, fields.service)) != 1:
        report("spec.webhook", "write exactly one of url, urlFrom and service")
    if fields.url is not None and (trouble := url_trouble(fields.url)):
        report("spec.webhook.url", f"{errors.quoted(shown(fields.url))} {trouble}")
    method, form = fields.method or "POST", fields.format or "Standard"
    _check_format(method, form, report)
    _check_tls(fields, report)
    return actions.WebhookAction(
        url=fields.url,
        url_secret=webhooksecrets.url(fields.url_from, report),
        service=None if fields.service is None else _service(fields.service, report),
        method=method,
        format=form,
        headers=webhooksecrets.headers(
            fields.headers or (),
            form if form in _CLOUD_EVENTS else "",
            authorized=fields.auth is not None,
            report=report,
        ),
        timeout_seconds=_timeout(fields.timeout_seconds, report),
        success=_statuses(fields.success or ("2xx",), (), "spec.webhook.success", report),
        retry=_retry(fields.retry or RetryFields(), report),
        signing=webhooksecrets.signing(fields.signing, report),
        auth=webhooksecrets.auth(fields.auth, report),
        tls=webhooksecrets.tls(fields.tls, report),
    )


def _check_format(method: str, form: str, report: Report) -> None:
    if method not in _METHODS:
        report(
            "spec.webhook.method", f"{errors.quoted(method)}: write one of {', '.join(_METHODS)}"
        )
    if form not in _FORMATS:
        report("spec.webhook.format", f"{errors.quoted(form)}: write one of {', '.join(_FORMATS)}")
    if method == "GET" and form == "CloudEventsStructured":
        report(
            "spec.webhook.format",
            "CloudEventsStructured is a body, and GET has none; write method POST, or format "
            "CloudEventsBinary",
        )


def _check_tls(fields: WebhookFields, report: Report) -> None:
    """Plain http with rules for certificates would look safe and not be."""
    if fields.tls is None:
        return
    if fields.url is not None and fields.url.startswith("http:"):
        report("spec.webhook.tls", "the URL is plain http; write https://, or remove tls")
    if fields.service is not None and fields.service.scheme != "https":
        report("spec.webhook.tls", "needs spec.webhook.service.scheme: https")


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


def _service(fields: ServiceFields, report: Report) -> actions.ServiceRef:
    """The path is put behind a host: anything but a path could turn it into another host."""
    scheme = fields.scheme or "http"
    at = "spec.webhook.service"
    if not _SERVICE_NAME.fullmatch(fields.name):
        report(f"{at}.name", f"{errors.quoted(fields.name)} is no name of a Service; write billing")
    if fields.path is not None and (not _PATH.fullmatch(fields.path) or "#" in fields.path):
        report(
            f"{at}.path",
            f"{errors.quoted(fields.path)} is no path; write /hooks/run, with %20 for a blank and "
            "without #",
        )
    if scheme not in ("http", "https"):
        report(f"{at}.scheme", f"{errors.quoted(scheme)}: write http or https")
    _check_service_port(fields.port, report)
    usual = 443 if scheme == "https" else 80
    return actions.ServiceRef(
        name=fields.name,
        port=usual if fields.port is None else fields.port,
        path=fields.path or "/",
        scheme=scheme,
    )


def _check_service_port(port: int | str | None, report: Report) -> None:
    is_name = isinstance(port, str) and bool(_PORT_NAME.fullmatch(port))
    is_number = isinstance(port, int) and 1 <= port <= _MAX_PORT
    if port is not None and not (is_name or is_number):
        report(
            "spec.webhook.service.port",
            f"{errors.quoted(str(port))} is no port; write 1 to {_MAX_PORT}, or its name",
        )


def _timeout(seconds: int | None, report: Report) -> int:
    if seconds is not None and not 1 <= seconds <= 300:
        report("spec.webhook.timeoutSeconds", f"{seconds} is out of range; write 1 to 300")
    return 30 if seconds is None else seconds


def _statuses(
    entries: tuple[str, ...], words: tuple[str, ...], path: str, report: Report
) -> tuple[str, ...]:
    for index, entry in enumerate(entries):
        if entry not in words and not _STATUS.fullmatch(entry):
            report(
                f"{path}[{index}]",
                f'{errors.quoted(entry)} is no status; write "204", "200-299" or "2xx"',
            )
    return entries


def _retry(fields: RetryFields, report: Report) -> actions.RetryRule:
    usual = actions.RetryRule()
    if fields.max_attempts is not None and fields.max_attempts < 1:
        report("spec.webhook.retry.maxAttempts", f"{fields.max_attempts} is too small; write 1")
    return actions.RetryRule(
        max_attempts=fields.max_attempts or usual.max_attempts,
        initial_backoff_us=_duration(
            fields.initial_backoff, "initialBackoff", usual.initial_backoff_us, report
        ),
        max_backoff_us=_duration(fields.max_backoff, "maxBackoff", usual.max_backoff_us, report),
        max_age_us=_duration(fields.max_age, "maxAge", usual.max_age_us, report),
        retry_on=_statuses(
            usual.retry_on if fields.retry_on is None else fields.retry_on,
            ("network",),
            "spec.webhook.retry.retryOn",
            report,
        ),
    )


def _duration(text: str | None, name: str, usual: int, report: Report) -> int:
    if text is None:
        return usual
    try:
        return durations.parse_duration_us(text)
    except ValueError as error:
        report(f"spec.webhook.retry.{name}", str(error))
        return usual


# -- the other targets ----------------------------------------------------------------------


def job(template: msgspec.Raw, report: Report) -> actions.JobAction | None:
    if len(template) > TEMPLATE_LIMIT_BYTES:
        report(
            "spec.jobTemplate",
            f"has {len(template)} bytes; at most {TEMPLATE_LIMIT_BYTES} are accepted",
        )
        return None
    decoded = msgspec.json.decode(template)
    if not isinstance(decoded, dict) or not isinstance(decoded.get("spec"), dict):
        report("spec.jobTemplate", "write a Job's template with a spec")
        return None
    _check_selector(decoded["spec"], report)
    return actions.JobAction(template=decoded)


def _check_selector(job: dict[str, object], report: Report) -> None:
    """The API server takes a selector that matches, and all Jobs of the Schedule would share it."""
    for name, is_written in (
        ("manualSelector", bool(job.get("manualSelector"))),
        ("selector", job.get("selector") is not None),
    ):
        if is_written:
            report(
                f"spec.jobTemplate.spec.{name}",
                f"take {name} out: each Job gets a selector of its own",
            )


def stream(fields: StreamFields, report: Report) -> actions.StreamAction:
    if not _STREAM.fullmatch(fields.name) or len(fields.name) > _MOST_STREAM_NAME:
        report(
            "spec.stream.name",
            f"{errors.quoted(fields.name)}: write letters, digits and . _ - / : between them, such "
            "as ticks or orders:nightly",
        )
    if fields.max_length is not None and fields.max_length < 1:
        report("spec.stream.maxLength", f"{fields.max_length} is too small; write 1 or more")
    connection = fields.connection_secret_ref
    return actions.StreamAction(
        name=fields.name,
        max_length=fields.max_length,
        connection=_secret_name(connection, "spec.stream.connectionSecretRef", report),
    )


def kafka(fields: KafkaFields, report: Report) -> actions.KafkaAction:
    if not _TOPIC.fullmatch(fields.topic) or fields.topic in {".", ".."}:
        report(
            "spec.kafka.topic",
            f"{errors.quoted(fields.topic)}: write up to 249 letters, digits and . _ -",
        )
    path = "spec.kafka.connectionSecretRef"
    connection = _secret_name(fields.connection_secret_ref, path, report)
    return actions.KafkaAction(topic=fields.topic, connection=connection or "")


def _secret_name(ref: webhooksecrets.NameFields | None, path: str, report: Report) -> str | None:
    if ref is None:
        return None
    if not _OBJECT.fullmatch(ref.name):
        report(
            f"{path}.name",
            f"{errors.quoted(ref.name)} is no name of a Secret",
        )
    return ref.name
