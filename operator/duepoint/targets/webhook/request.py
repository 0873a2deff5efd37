"""The HTTP request of one attempt: method, headers and body, as they go out.

Owns the four formats and the precedence of headers. Users cannot replace the headers that identify
and sign a delivery. They can replace headers that describe the body, unless the format depends on
them. The signature covers the bytes that are sent, so it is computed here, last. Pure.

Receivers store the bodies: fields may be added, never renamed or given another meaning. Values that
differ between attempts (``attempt``, ``generated_at``) are in the body and in no id. The envelope
is that of Standard Webhooks (type, timestamp, data). A CloudEvent carries the same ``data``, which
repeats what the event's attributes say.
"""

from __future__ import annotations

import msgspec

import duepoint
from duepoint import errors
from duepoint.schedules import actions
from duepoint.targets import target
from duepoint.targets.webhook import credentials, signing

EVENT_TYPE = "schedule.fired"
#: The type for CloudEvents, which asks for the definer's domain in front.
CLOUD_EVENT_TYPE = f"dev.duepoint.{EVENT_TYPE}"
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

_NULL = msgspec.Raw(b"null")
_CONTENT_TYPE = ("content-type", "application/json")
_USUAL = (("accept", "*/*"), ("user-agent", f"duepoint/{duepoint.__version__}"))


class ScheduleName(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which Schedule fired; or which member of the ScheduleSet ``set``, by its id."""

    namespace: str
    name: str
    uid: str
    set: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """``data`` of the body. Times are RFC 3339 in UTC; ``version`` is the generation."""

    id: str
    generated_at: str
    schedule_id: str
    schedule: ScheduleName
    scheduled_time: str
    previous_time: str | None
    attempt: int
    trigger: str
    version: int
    payload: msgspec.Raw


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The whole body; ``timestamp`` is the slot's."""

    type: str
    timestamp: str
    data: Facts


class Composer:
    """Composes the requests of one webhook with its current credentials.

    Args:
        kept: None for a webhook that needs none.

    Attributes:
        common: headers that all these requests have.
    """

    __slots__ = ("_format", "_has_body", "_replaced", "_signers", "common")

    def __init__(
        self, webhook: actions.WebhookAction, kept: credentials.WebhookCredentials | None
    ) -> None:
        self._format = webhook.format
        self._has_body = webhook.method != "GET"
        self._signers = () if kept is None else kept.signers
        usual = [*_USUAL]
        if webhook.format == "CloudEventsStructured":
            usual.append(("content-type", STRUCTURED_CONTENT_TYPE))
        elif webhook.format != "Raw" and self._has_body:
            usual.append(_CONTENT_TYPE)
        if kept is not None:
            theirs = kept.headers
        else:
            theirs = tuple((header.name, header.value or "") for header in webhook.headers)
        # The user's headers replace our defaults.
        self._replaced = frozenset(name.lower() for name, _ in theirs)
        self.common = (*(pair for pair in usual if pair[0] not in self._replaced), *theirs)

    def compose(
        self, firing: target.Firing, now_us: int
    ) -> tuple[list[tuple[str, str]], bytes | None]:
        """Return the headers beyond ``common`` and the body of an attempt; None = no body."""
        own: list[tuple[str, str]] = []
        match self._format:
            case "Standard":
                data = _facts(firing, now_us)
                body = msgspec.json.encode(
                    Envelope(type=EVENT_TYPE, timestamp=data.scheduled_time, data=data)
                )
            case "CloudEventsBinary":
                # Every attribute is ASCII without blanks and percents, so none needs the binding's
                # escapes (CloudEvents 1.0, HTTP protocol binding, 3.1.3.2).
                own += [(f"ce-{name}", value) for name, value in _attributes(firing).items()]
                body = msgspec.json.encode(_facts(firing, now_us))
            case "CloudEventsStructured":
                data = _facts(firing, now_us)
                event = {**_attributes(firing), "datacontenttype": "application/json", "data": data}
                body = msgspec.json.encode(event)
            case "Raw":
                body = bytes(firing.action.payload)  # as it is stored, or nothing
                if body and self._has_body:
                    own.append(_CONTENT_TYPE)
            case unknown:
                raise errors.Bug(f"a webhook of format {unknown} was accepted")
        if firing.traceparent:
            own.append(("traceparent", firing.traceparent))
        if own and self._replaced:
            own = [pair for pair in own if pair[0] not in self._replaced]
        webhook_id = target.webhook_id(firing.uid, firing.slot_us, firing.run_uid)
        sent_at = str(now_us // 1_000_000)
        own += (("webhook-id", webhook_id), ("webhook-timestamp", sent_at))
        if self._signers:
            signed = body if self._has_body else b""
            value = signing.header(self._signers, webhook_id, sent_at, signed)
            own.append(("webhook-signature", value))
        return own, body if self._has_body else None


def _attributes(firing: target.Firing) -> dict[str, str]:
    """Return the CloudEvents attributes; source and id identify the slot, time is the slot's."""
    return {
        "specversion": "1.0",
        "id": target.event_id(firing.schedule_id, firing.slot_us, firing.run_uid),
        "source": _source(firing),
        "type": CLOUD_EVENT_TYPE,
        "time": target.instant_text(firing.slot_us),
    }


def _source(firing: target.Firing) -> str:
    of_set = "" if firing.owner is None else f"/schedulesets/{firing.owner.name}"
    return f"/namespaces/{firing.namespace}{of_set}/schedules/{firing.name}"


def _facts(firing: target.Firing, now_us: int) -> Facts:
    schedule_id = firing.schedule_id
    return Facts(
        id=target.event_id(schedule_id, firing.slot_us, firing.run_uid),
        generated_at=target.instant_text(now_us),
        schedule_id=schedule_id,
        schedule=ScheduleName(
            namespace=firing.namespace,
            name=firing.name,
            uid=firing.uid,
            set="" if firing.owner is None else firing.owner.name,
        ),
        scheduled_time=target.instant_text(firing.slot_us),
        previous_time=None
        if firing.previous_us is None
        else target.instant_text(firing.previous_us),
        attempt=firing.attempt,
        trigger=firing.trigger,
        version=firing.generation,
        payload=firing.action.payload or _NULL,
    )
