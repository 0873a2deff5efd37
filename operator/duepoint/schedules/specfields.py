"""Readers of the fields that the specs of a Schedule and a ScheduleSet have in common.

``duepoint.model`` defines the fields, their limits and the rules between them. A reader reports
each error to ``SpecFindings`` and returns a harmless value, so that one pass finds every error.
Null means absent everywhere. Pure.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from duepoint import errors
from duepoint.expressions import durations
from duepoint.model import checks, schemas, vocabulary
from duepoint.model import targets as model
from duepoint.model import webhook as modelwebhook
from duepoint.model.member import OptionFields
from duepoint.model.schedule import ScheduleFields
from duepoint.model.scheduleset import DefaultsFields, SetFields
from duepoint.schedules import actions, jsontext
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason

TEMPLATE_LIMIT_BYTES = 256 * 1024
_MOST_HEADER_BYTES = 64 * 1024


def webhook(fields: modelwebhook.WebhookFields, findings: SpecFindings) -> actions.WebhookAction:
    """Return the action of the fields; reports errors, and puts harmless values in their place."""
    method, form = fields.method or "POST", fields.format or "Standard"
    if fields.url is not None and (trouble := _host_trouble(fields.url)):
        findings.add("spec.webhook.url", f"{modelwebhook.shown(fields.url)}: {trouble}")
    if method == "GET" and form == "CloudEventsStructured":
        findings.add(
            "spec.webhook.format",
            "CloudEventsStructured is a body, and GET has none; write method POST, or format "
            "CloudEventsBinary",
        )
    _check_tls(fields, findings)
    _check_headers(fields.headers or (), form, findings)
    token = None if fields.auth is None else fields.auth.service_account_token
    if token is not None and not (token.audience.strip() and token.audience.isprintable()):
        path = "spec.webhook.auth.serviceAccountToken.audience"
        findings.add(path, "is empty; write whom the token is for, such as billing.example")
    values = msgspec.structs.asdict(fields) | {
        "service": None if fields.service is None else _service(fields.service),
        "retry": _retry(fields.retry or modelwebhook.RetryFields(), findings),
    }
    return actions.WebhookAction(
        **{name: value for name, value in values.items() if value is not None}
    )


def _check_tls(fields: modelwebhook.WebhookFields, findings: SpecFindings) -> None:
    """Report TLS settings on a plain http target: they would look safe and have no effect."""
    if fields.tls is None:
        return
    if fields.url is not None and fields.url.startswith("http:"):
        findings.add("spec.webhook.tls", "the URL is plain http; write https://, or remove tls")
    if fields.service is not None and fields.service.scheme != "https":
        findings.add("spec.webhook.tls", "needs spec.webhook.service.scheme: https")


def _check_headers(
    fields: tuple[modelwebhook.HeaderFields, ...], form: str, findings: SpecFindings
) -> None:
    if sum(len(header.name) + len(header.value or "") for header in fields) > _MOST_HEADER_BYTES:
        findings.add(
            "spec.webhook.headers", f"is larger than {_MOST_HEADER_BYTES} bytes; shorten it"
        )
    for index, header in enumerate(fields if form in modelwebhook.CLOUD_EVENTS else ()):
        name = header.name.lower()
        if name.startswith("ce-") or name == "content-type":
            findings.add(
                f"spec.webhook.headers[{index}].name",
                f"{header.name} is set by format {form}; remove it",
            )


def url_trouble(url: str) -> str:
    """Return what is wrong with a URL, without repeating it; empty if it can be called."""
    for rule in _URL[schemas.RULES]:
        if not rule.holds(url):
            return str(rule.message)
    return _host_trouble(url)


def _host_trouble(url: str) -> str:
    """Return what is wrong with the host; brackets must contain an address (RFC 3986, 3.2.2)."""
    host = url.partition("://")[2]
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:].partition("]")[0])
    except ValueError:
        return "write an IPv6 address in the brackets"
    return ""


_URL = schemas.of(modelwebhook.WebhookFields)["properties"]["url"]


def is_unsendable(value: str) -> bool:
    """Whether a header with this value would end its line, or be cut by a proxy on the way."""
    return any((char < " " and char != "\t") or char == "\x7f" for char in value)


def _service(fields: modelwebhook.ServiceFields) -> actions.ServiceRef:
    usual = 443 if fields.scheme == "https" else 80
    return actions.ServiceRef(
        name=fields.name,
        port=usual if fields.port is None else fields.port,
        path=fields.path or "/",
        scheme=fields.scheme or "http",
    )


def _retry(fields: modelwebhook.RetryFields, findings: SpecFindings) -> actions.RetryRule:
    usual = actions.RetryRule()

    def duration_us(text: str | None, name: str, unset: int) -> int:
        try:
            return unset if text is None else durations.parse_duration_us(text)
        except ValueError as error:
            findings.add(f"spec.webhook.retry.{name}", str(error))
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


def job(template: msgspec.Raw, findings: SpecFindings) -> actions.JobAction | None:
    if len(template) > TEMPLATE_LIMIT_BYTES:
        findings.add(
            "spec.jobTemplate",
            f"has {len(template)} bytes; at most {TEMPLATE_LIMIT_BYTES} are accepted",
        )
        return None
    decoded = msgspec.json.decode(template)
    if not isinstance(decoded, dict) or not isinstance(decoded.get("spec"), dict):
        findings.add("spec.jobTemplate", "write a Job's template with a spec")
        return None
    _check_selector(decoded["spec"], findings)
    return actions.job_of(decoded)


def _check_selector(job: dict[str, object], findings: SpecFindings) -> None:
    """Report a selector, which the API server may accept but all Jobs would share."""
    there = {name: value for name, value in job.items() if value is not None}
    for rule in model.SELECTOR_RULES:
        if not rule.holds(there):
            findings.add(f"spec.jobTemplate.spec.{rule.path}", rule.message)


# -- what specs have in common ---------------------------------------------------------------------

FieldsT = TypeVar("FieldsT", bound=vocabulary.Fields)


@dataclass(slots=True)
class SpecFindings:
    """The errors found so far, collected while the rest of the spec is read."""

    errors: list[errors.FieldError] = field(default_factory=list)

    def add(self, path: str, message: str) -> None:
        """Report an error that the model cannot find, unless it has refused the field already."""
        if all(each.path != path for each in self.errors):
            self._add(path, message)

    def check(self, fields: vocabulary.Fields, path: str = "spec") -> None:
        """Report the errors that the model finds in the fields."""
        for each in checks.problems(fields, path):
            self._add(each.path, each.message)

    def _add(self, path: str, message: str) -> None:
        is_of_job = path.startswith("spec.jobTemplate")
        reason = Reason.INVALID_JOB_TEMPLATE if is_of_job else Reason.INVALID_SPEC
        self.errors.append(errors.FieldError(reason=reason, path=path, message=message))


def decode(decoder: msgspec.json.Decoder[FieldsT], raw: bytes) -> FieldsT:
    """Return the fields in the JSON text of a spec.

    Raises:
        errors.InvalidSpec: if a field has the wrong type or is nested too deeply.
    """
    if too_deep := jsontext.too_deep(raw):
        message = f"is nested deeper than {jsontext.DEEPEST} levels; write it flatter"
        raise _wrong(f"spec.{too_deep}", message)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        found = checks.of_decoder(error)
        raise _wrong(f"spec{found.path}", found.message) from None


def _wrong(path: str, message: str) -> errors.InvalidSpec:
    return errors.InvalidSpec(
        (errors.FieldError(reason=Reason.INVALID_SPEC, path=path, message=message),)
    )


def policy(fields: vocabulary.Fields, usual: rules.Policy) -> rules.Policy:
    """Return the policy of the fields that are set; ``usual`` fills in the others, by name."""
    values = {name: getattr(fields, name, None) for name in usual.__struct_fields__}
    # CronJob accepts an empty text, too
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return msgspec.structs.replace(usual, **given)


def timing(
    fields: ScheduleFields | DefaultsFields | OptionFields,
    usual: rules.Timing,
    path: str,
    findings: SpecFindings,
) -> rules.Timing:
    """Return the timing with the zone, clock changes and jitter of the fields that are set."""
    dst, jitter, jitter_ms = fields.dst, fields.jitter, usual.jitter_ms
    if jitter is not None:
        try:
            jitter_ms = durations.parse_duration_us(jitter) // 1000
        except ValueError as error:
            findings.add(f"{path}.jitter", str(error))
    return msgspec.structs.replace(
        usual,
        time_zone=usual.time_zone if fields.time_zone is None else fields.time_zone,
        gap=(dst and dst.gap) or usual.gap,
        overlap=(dst and dst.overlap) or usual.overlap,
        jitter_ms=jitter_ms,
    )


def instant(time: dt.datetime | None) -> int | None:
    """Return a time in microseconds since the epoch; a time without a zone is UTC."""
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (aware - epoch) // dt.timedelta(microseconds=1)


def payload(text: msgspec.Raw, limit_bytes: int, findings: SpecFindings) -> msgspec.Raw:
    """Return the payload of every run, as JSON text; ``NO_PAYLOAD`` if there is none."""
    given = text if vocabulary.is_given(text) else actions.NO_PAYLOAD
    if len(given) > limit_bytes:
        findings.add(
            "spec.payload",
            f"has {len(given)} bytes; at most {limit_bytes} are handed on, so put a "
            "reference to larger data in it",
        )
    return given


def target(fields: ScheduleFields | SetFields, findings: SpecFindings) -> actions.Target | None:
    """Return the one target; None if there is none, or if the job template is not valid."""
    if vocabulary.is_given(fields.job_template):
        return job(fields.job_template, findings)
    if fields.webhook is not None:
        return webhook(fields.webhook, findings)
    for name in model.TargetFields.__struct_fields__:
        if (given := getattr(fields, name)) is not None:
            return actions.KINDS[name](**msgspec.structs.asdict(given))
    return None
