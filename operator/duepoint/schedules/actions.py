"""Actions: what a schedule does when it is due, a target and a payload stored as one blob.

An action may be large, and schedules made from one template share it. So it is stored apart from
the definitions, once per namespace, under a keyed hash. The blob is canonical JSON; an edit that
leaves its bytes the same is not a change. Each class of action also defines its ``kind``, the time
limit of one attempt (``limit_seconds``), whether it ``needs_secrets``, and the ``text`` that
``status.target`` shows. Pure. Stored: fields may be added with a default, never renamed or given
another meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, get_args

import msgspec

from duepoint.model import targets
from duepoint.model import webhook as model

#: Jobs and objects of more than this keep the API server busy: they wait for each other.
LARGE_BYTES = 32 * 1024


class JobAction(
    msgspec.Struct, frozen=True, kw_only=True, tag="job", tag_field="kind", omit_defaults=True
):
    """Create a Job from a template.

    Attributes:
        template: ``spec.jobTemplate`` as canonical JSON text. Decoded it takes a dozen times as
            much memory, so it is decoded only while a Job is made.
        is_large: set in the stand-in, with an empty template, that waits in place of a large one.
    """

    template: msgspec.Raw = msgspec.Raw(b"{}")
    is_large: bool = False

    kind: ClassVar[str] = "job"
    text: ClassVar[str] = "Job"
    limit_seconds: ClassVar[float] = 10.0
    needs_secrets: ClassVar[bool] = False

    def opened(self) -> dict[str, Any]:
        """Return the decoded template; the caller should not keep it for long."""
        found: dict[str, Any] = msgspec.json.decode(self.template)
        return found


def job_of(template: Mapping[str, Any]) -> JobAction:
    """Return the action that makes Jobs of this template."""
    return JobAction(template=msgspec.Raw(msgspec.json.encode(template, order="deterministic")))


class ServiceRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Service in the schedule's own namespace; ``port`` is a number or a port's name."""

    name: str
    port: int | str = 80
    path: str = "/"
    scheme: str = "http"


class RetryRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often and when to retry a delivery; the reference page has the same defaults."""

    max_attempts: int = 20
    initial_backoff_us: int = 5_000_000
    max_backoff_us: int = 900_000_000
    max_age_us: int = 86_400_000_000
    retry_on: tuple[str, ...] = ("408", "409", "425", "429", "5xx", "network")


class WebhookAction(
    model.WebhookFields,
    kw_only=True,
    tag="webhook",
    tag_field="kind",
    omit_defaults=True,
):
    """Send an HTTP request: the fields of ``spec.webhook``, with defaults for those not set."""

    service: ServiceRef | None = None  # type: ignore[assignment]  # with its defaults
    method: str = "POST"
    format: str = "Standard"
    headers: tuple[model.HeaderFields, ...] = ()
    timeout_seconds: int = 30
    success: tuple[str, ...] = ("2xx",)
    retry: RetryRule = RetryRule()  # type: ignore[assignment]  # in microseconds

    kind: ClassVar[str] = "webhook"

    @property
    def text(self) -> str:
        if self.service is not None:
            return f"Webhook {self.service.scheme}://{self.service.name}:{self.service.port}"
        if self.url_from is not None:
            return f"Webhook of Secret {self.url_from.secret_key_ref.name}"
        return f"Webhook {model.host_of(self.url or '').removesuffix('/…')}"

    @property
    def limit_seconds(self) -> float:
        return float(self.timeout_seconds)

    @property
    def needs_secrets(self) -> bool:
        """Whether Secrets, tokens or certificates have to be read before it can be sent."""
        return bool(
            self.signing
            or self.url_from is not None
            or self.auth is not None
            or self.tls is not None
            or any(header.value_from is not None for header in self.headers)
        )


class StreamAction(targets.StreamFields, tag="stream", tag_field="kind", omit_defaults=True):
    """Append to a stream: the fields of ``spec.stream``."""

    kind: ClassVar[str] = "stream"
    limit_seconds: ClassVar[float] = 5.0

    @property
    def connection(self) -> str | None:
        """The name of the Secret with the connection to another Redis; None = Duepoint's own."""
        return None if self.connection_secret_ref is None else self.connection_secret_ref.name

    @property
    def text(self) -> str:
        return f"Stream {self.name}"

    @property
    def needs_secrets(self) -> bool:
        return self.connection is not None


#: Entries that a stream in Duepoint's own Redis keeps if its Schedule sets no limit. A namespace's
#: streams are also bounded by bytes, which the installation sets.
OWN_STREAM_LENGTH = 10_000
NO_OWN_STREAMS = (
    "this installation has no streams in Duepoint's own Redis; name another Redis in"
    " connectionSecretRef, or write kafka or webhook instead"
)


def own_stream(target: Target) -> StreamAction | None:
    """Return the target if it is a stream in Duepoint's own Redis, else None."""
    return target if isinstance(target, StreamAction) and target.connection is None else None


class KafkaAction(targets.KafkaFields, tag="kafka", tag_field="kind"):
    """Produce a record: the fields of ``spec.kafka``."""

    kind: ClassVar[str] = "kafka"
    #: Includes the first connection to the brokers.
    limit_seconds: ClassVar[float] = 10.0
    needs_secrets: ClassVar[bool] = True

    @property
    def connection(self) -> str:
        """The name of the Secret with the brokers' addresses."""
        return self.connection_secret_ref.name

    @property
    def text(self) -> str:
        return f"Kafka {self.topic}"


Target = JobAction | WebhookAction | StreamAction | KafkaAction
#: The action of each kind.
KINDS: Final[Mapping[str, type[Target]]] = {each.kind: each for each in get_args(Target)}

#: No payload. One object, because msgspec leaves out a default only where it is the same object.
NO_PAYLOAD = msgspec.Raw()


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target and the JSON text of its payload, which may be empty."""

    target: Target
    payload: msgspec.Raw = NO_PAYLOAD


_decoder = msgspec.json.Decoder(Action)


def encode(action: Action) -> bytes:
    """Return the blob to store."""
    if not action.payload and action.payload is not NO_PAYLOAD:
        action = Action(target=action.target)
    return msgspec.json.encode(action, order="deterministic")


def decode(blob: bytes) -> Action:
    """Return the action of a blob made by ``encode``; raises msgspec.DecodeError for any other."""
    return _decoder.decode(blob)


#: Memory of the structs around an action, its digest and its place in a cache.
_ENTRY_BYTES = 1_024


def memory_bytes(text_bytes: int) -> int:
    """Return the most memory, in bytes, of an action that was decoded from a blob of this length.

    It counts the action's texts, and the blob that a payload and a template keep alive.
    """
    return _ENTRY_BYTES + 2 * text_bytes
