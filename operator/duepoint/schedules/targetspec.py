"""The target of a spec: ``jobTemplate``, ``webhook``, ``stream`` or ``kafka`` -> an action.

The fields, their limits and the rules between them stand in ``duepoint.model``, which checks them;
here is what they mean, and the few checks that no CRD can make. None of the objects that a webhook
names has a namespace: it is always the Schedule's own. They are not read here; the worker, which
alone may read them, finds out whether they exist. Errors are reported one by one, with the field's
path. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import msgspec

from duepoint.expressions import durations
from duepoint.model import schemas
from duepoint.model import targets as model
from duepoint.model import webhook as modelwebhook
from duepoint.schedules import actions

TEMPLATE_LIMIT_BYTES = 256 * 1024
_MOST_HEADER_BYTES = 64 * 1024

#: Called with the field's path and what is wrong with it.
Report = Callable[[str, str], None]


def webhook(fields: modelwebhook.WebhookFields, report: Report) -> actions.WebhookAction:
    """The action behind the fields; what is wrong is reported, and a harmless value stands in."""
    method, form = fields.method or "POST", fields.format or "Standard"
    if fields.url is not None and (trouble := _host_trouble(fields.url)):
        report("spec.webhook.url", f"{modelwebhook.shown(fields.url)}: {trouble}")
    if method == "GET" and form == "CloudEventsStructured":
        report(
            "spec.webhook.format",
            "CloudEventsStructured is a body, and GET has none; write method POST, or format "
            "CloudEventsBinary",
        )
    _check_tls(fields, report)
    _check_headers(fields.headers or (), form, report)
    return actions.WebhookAction(
        url=fields.url,
        url_secret=None if fields.url_from is None else _key(fields.url_from.secret_key_ref),
        service=None if fields.service is None else _service(fields.service),
        method=method,
        format=form,
        headers=tuple(map(_header, fields.headers or ())),
        timeout_seconds=fields.timeout_seconds or 30,
        success=fields.success or ("2xx",),
        retry=_retry(fields.retry or modelwebhook.RetryFields(), report),
        signing=() if fields.signing is None else tuple(map(_key, fields.signing.secret_key_refs)),
        auth=None if fields.auth is None else _auth(fields.auth, report),
        tls=None if fields.tls is None else _tls(fields.tls),
    )


def _check_tls(fields: modelwebhook.WebhookFields, report: Report) -> None:
    """Plain http with rules for certificates would look safe and not be."""
    if fields.tls is None:
        return
    if fields.url is not None and fields.url.startswith("http:"):
        report("spec.webhook.tls", "the URL is plain http; write https://, or remove tls")
    if fields.service is not None and fields.service.scheme != "https":
        report("spec.webhook.tls", "needs spec.webhook.service.scheme: https")


def _check_headers(
    fields: tuple[modelwebhook.HeaderFields, ...], form: str, report: Report
) -> None:
    if sum(len(header.name) + len(header.value or "") for header in fields) > _MOST_HEADER_BYTES:
        report("spec.webhook.headers", f"is larger than {_MOST_HEADER_BYTES} bytes; shorten it")
    for index, header in enumerate(fields if form in modelwebhook.CLOUD_EVENTS else ()):
        name = header.name.lower()
        if name.startswith("ce-") or name == "content-type":
            report(
                f"spec.webhook.headers[{index}].name",
                f"{header.name} is set by format {form}; remove it",
            )


def url_trouble(url: str) -> str:
    """What is wrong with a URL, without repeating it; empty where it can be called."""
    for rule in _URL[schemas.RULES]:
        if not rule.holds(url):
            return str(rule.message)
    return _host_trouble(url)


def _host_trouble(url: str) -> str:
    """What stands in brackets is an address (RFC 3986, 3.2.2); any other name may be one."""
    host = url.partition("://")[2]
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:].partition("]")[0])
    except ValueError:
        return "write an address of IPv6 in the brackets"
    return ""


_URL = schemas.of(modelwebhook.WebhookFields)["properties"]["url"]


def is_unsendable(value: str) -> bool:
    """Whether a header with this value would end its line, or be cut by a proxy on the way."""
    return any((char < " " and char != "\t") or char == "\x7f" for char in value)


def _key(fields: modelwebhook.SecretKeyRefFields) -> actions.SecretKey:
    return actions.SecretKey(name=fields.name, key=fields.key)


def _service(fields: modelwebhook.ServiceFields) -> actions.ServiceRef:
    usual = 443 if fields.scheme == "https" else 80
    return actions.ServiceRef(
        name=fields.name,
        port=usual if fields.port is None else fields.port,
        path=fields.path or "/",
        scheme=fields.scheme or "http",
    )


def _header(fields: modelwebhook.HeaderFields) -> actions.Header:
    secret = None if fields.value_from is None else _key(fields.value_from.secret_key_ref)
    return actions.Header(name=fields.name, value=fields.value or "", secret=secret)


def _auth(
    fields: modelwebhook.AuthFields, report: Report
) -> actions.Bearer | actions.Basic | actions.AccountToken | None:
    """How we say who we are."""
    if fields.bearer is not None:
        return actions.Bearer(secret=_key(fields.bearer.secret_key_ref))
    if fields.basic is not None:
        return actions.Basic(secret_name=fields.basic.secret_ref.name)
    token = fields.service_account_token
    if token is None:
        return None
    if not token.audience.strip() or not token.audience.isprintable():
        path = "spec.webhook.auth.serviceAccountToken.audience"
        report(path, "is empty; write whom the token is for, such as billing.example")
    return actions.AccountToken(account=token.service_account_name, audience=token.audience)


def _tls(fields: modelwebhook.TlsFields) -> actions.Tls:
    """How the receiver's certificate is checked, and ours shown."""
    ca, certificate = fields.ca_ref, fields.client_certificate_secret_ref
    return actions.Tls(
        ca=None if ca is None else _ca(ca),
        client_certificate=None if certificate is None else certificate.name,
        server_name=fields.server_name,
        insecure_skip_verify=bool(fields.insecure_skip_verify),
    )


def _ca(fields: modelwebhook.CaRefFields) -> actions.CaRef:
    if fields.secret is not None:
        return actions.CaRef(kind="Secret", name=fields.secret, key=fields.key)
    return actions.CaRef(kind="ConfigMap", name=fields.config_map or "", key=fields.key)


def _retry(fields: modelwebhook.RetryFields, report: Report) -> actions.RetryRule:
    usual = actions.RetryRule()

    def duration_us(text: str | None, name: str, unset: int) -> int:
        try:
            return unset if text is None else durations.parse_duration_us(text)
        except ValueError as error:
            report(f"spec.webhook.retry.{name}", str(error))
            return unset

    return actions.RetryRule(
        max_attempts=fields.max_attempts or usual.max_attempts,
        initial_backoff_us=duration_us(
            fields.initial_backoff, "initialBackoff", usual.initial_backoff_us
        ),
        max_backoff_us=duration_us(fields.max_backoff, "maxBackoff", usual.max_backoff_us),
        max_age_us=duration_us(fields.max_age, "maxAge", usual.max_age_us),
        retry_on=usual.retry_on if fields.retry_on is None else fields.retry_on,
    )


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
    there = {name: value for name, value in job.items() if value is not None}
    for rule in model.SELECTOR_RULES:
        if not rule.holds(there):
            report(f"spec.jobTemplate.spec.{rule.path}", rule.message)


def stream(fields: model.StreamFields) -> actions.StreamAction:
    connection = fields.connection_secret_ref
    return actions.StreamAction(
        name=fields.name,
        max_length=fields.max_length,
        connection=None if connection is None else connection.name,
    )


def kafka(fields: model.KafkaFields) -> actions.KafkaAction:
    return actions.KafkaAction(topic=fields.topic, connection=fields.connection_secret_ref.name)
