"""``spec.webhook``: destination, request, authentication, TLS, success and retries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from duepoint import errors
from duepoint.model.vocabulary import (
    ATOMIC,
    DataKey,
    Duration,
    Fields,
    Int32,
    Keywords,
    ObjectName,
    Rule,
    choices,
    compiled,
    keyed_by,
    lacks,
    mapping,
    matches,
    one_of,
    within,
)

CLOUD_EVENTS: Final = ("CloudEventsBinary", "CloudEventsStructured")
_PORT_NAME: Final = r"^[a-z0-9-]*[a-z][a-z0-9-]*$"
_HOST_END = re.compile(r"[/?#\\\s]")
#: A user's header must not change the destination, the framing of the body, or the signature.
_FORBIDDEN_HEADERS: Final = (
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
    "upgrade", "proxy-connection", "proxy-authenticate", "proxy-authorization", "expect",
)  # fmt: skip
#: Headers whose values are credentials; more people can read a spec than a Secret.
_CREDENTIALS: Final = ("authorization", "cookie", "proxy-authorization")


def host_of(url: str) -> str:
    """Return only the scheme and host of a URL.

    A login, a path or a query may be a credential, and people who may not read Schedules read
    Events.
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        rest, scheme = url, ""
    host = _HOST_END.split(rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}{slashes}{host}" + "/…" * (len(host) < len(rest))


def shown(url: str) -> str:
    """Return a URL as messages show it."""
    return errors.quoted(host_of(url))


def _is_port(port: int | str) -> bool:
    return 1 <= port <= 65_535 if isinstance(port, int) else bool(compiled(_PORT_NAME).search(port))


def _has_one_authorization(webhook: Mapping[str, Any]) -> bool:
    if "auth" not in webhook:
        return True
    names = [str(mapping(each).get("name")).lower() for each in webhook.get("headers", ())]
    return "authorization" not in names


class SecretRefFields(Fields):
    """A whole Secret of this namespace."""

    name: Annotated[ObjectName, "Name of the Secret, in the object's own namespace."]


class SecretKeyRefFields(Fields):
    """One key of a Secret of this namespace."""

    name: Annotated[ObjectName, "Name of the Secret, in the object's own namespace."]
    key: Annotated[DataKey, "Key inside the Secret's data."]


_Status = Annotated[
    str,
    Keywords(maxLength=7),
    matches(
        r"^([2-5][0-9][0-9](-[2-5][0-9][0-9])?|[2-5]xx)$",
        'write a status code as text, "204", a range "200-299" or a class "2xx"',
    ),
    Rule(
        cel="!self.matches(r'^[0-9]{3}-[0-9]{3}$') || self.substring(0, 3) <= self.substring(4, 7)",
        message='a range of status codes runs upward, such as "200-299"',
        holds=lambda text: "-" not in text or text.partition("-")[0] <= text.partition("-")[2],
    ),
]
_Retried = Annotated[
    str,
    Keywords(maxLength=7),
    matches(
        r"^([2-5][0-9][0-9](-[2-5][0-9][0-9])?|[2-5]xx|network)$",
        'write a status code as text, "429", a range "500-504", a class "5xx", or "network"',
    ),
]


class FromSecretFields(Fields):
    """A text that is read from a key of a Secret at each delivery."""

    secret_key_ref: SecretKeyRefFields


class ServiceFields(Fields):
    """A Service of the object's own namespace. Exactly one of url, urlFrom and service."""

    name: Annotated[
        str,
        Keywords(minLength=1, maxLength=63),
        matches(
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "write the bare name of a Service in this namespace, such as billing, without "
            ".namespace.svc",
        ),
        "Name of the Service.",
    ]
    port: Annotated[
        int | str | None,
        Keywords(maxLength=15),
        Rule(
            cel=f"type(self) == int ? self >= 1 && self <= 65535 : self.matches(r'{_PORT_NAME}')",
            message="write a port from 1 to 65535, such as 8080, or the name of a port of the "
            "Service, such as http",
            holds=_is_port,
        ),
        "Port of the Service, a number or the port's name. unset = 80, and 443 with scheme https.",
    ] = None
    path: Annotated[
        str | None,
        Keywords(maxLength=2048),
        matches(
            r'^/[!"$-~]*$',
            "write a path that begins with / and holds neither blanks nor #, such as "
            "/hooks/nightly?x=1",
        ),
        "Path and query of the request. unset = /.",
    ] = None
    scheme: Annotated[str | None, choices("http", "https"), "unset = http."] = None


class HeaderFields(Fields, omit_defaults=True):
    name: Annotated[
        str,
        Keywords(minLength=1, maxLength=128),
        matches(
            r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
            "write a header name such as X-Team, letters, digits and - only, without a colon or "
            "blanks",
        ),
        lacks(
            rf"^(?i:webhook-.*|{'|'.join(_FORBIDDEN_HEADERS)})$",
            "take this header out; Host, Content-Length, webhook-* and the headers of the "
            "connection are set by the delivery itself",
        ),
        "Name of the header.",
    ]
    value: Annotated[
        str | None,
        Keywords(maxLength=4096),
        matches(
            r"^([!-~]([ -~\t]*[!-~])?)?$",
            "write printable ASCII in one line, without blanks at the ends",
        ),
        "The header's value.",
    ] = None
    value_from: Annotated[
        FromSecretFields | None, "Where the header's value is read at each delivery."
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of(value="plain text", valueFrom="a key of a Secret"),
        Rule(
            cel=f"!has(self.value) || !(self.name.lowerAscii() in {list(_CREDENTIALS)})",
            message="do not write a credential into the object: write valueFrom.secretKeyRef, or "
            "use webhook.auth",
            holds=lambda header: (
                "value" not in header or header.get("name", "").lower() not in _CREDENTIALS
            ),
            path="value",
        ),
    )


class SigningFields(Fields):
    """Signs each request by the Standard Webhooks specification. unset = unsigned."""

    secret_key_refs: Annotated[
        tuple[SecretKeyRefFields, ...],
        Keywords(minItems=1, maxItems=8),
        ATOMIC,
        "Keys that hold whsec_... secrets, as echo whsec_$(openssl rand -base64 32) makes them. "
        "All sign at once: add one, let receivers take it, remove the old one. Workers read a "
        "changed Secret within a minute.",
    ]


class BearerFields(Fields):
    """Authorization: Bearer, from a Secret."""

    secret_key_ref: SecretKeyRefFields


class BasicFields(Fields):
    """Authorization: Basic, from a Secret with the keys username and password."""

    secret_ref: SecretRefFields


class ServiceAccountTokenFields(Fields):
    service_account_name: Annotated[
        ObjectName, "Name of the ServiceAccount, in the object's own namespace."
    ]
    audience: Annotated[
        str,
        Keywords(minLength=1, maxLength=253),
        "Recipient of the token. Never the API server itself.",
    ]


class AuthFields(Fields, omit_defaults=True):
    """How the request authenticates; exactly one of bearer, basic and serviceAccountToken.

    unset = not at all.
    """

    bearer: BearerFields | None = None
    basic: BasicFields | None = None
    service_account_token: Annotated[
        ServiceAccountTokenFields | None,
        "Authorization: Bearer, with a token of a ServiceAccount of this namespace that lives 10 "
        "minutes.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of("auth.", bearer="", basic="", serviceAccountToken=""),
    )


class CaRefFields(Fields, omit_defaults=True):
    key: Annotated[DataKey, "Key that holds the PEM certificates."]
    config_map: Annotated[ObjectName | None, "Name of the ConfigMap."] = None
    secret: Annotated[ObjectName | None, "Name of the Secret."] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of("caRef.", configMap="", secret="either names what holds the key"),  # noqa: S106
    )


class TlsFields(Fields, omit_defaults=True):
    """How the receiver's certificate is checked and ours is shown.

    unset = the public authorities, no certificate of ours.
    """

    ca_ref: Annotated[
        CaRefFields | None,
        "Certificate authorities to trust instead of the public ones, from exactly one ConfigMap "
        "or Secret of this namespace.",
    ] = None
    client_certificate_secret_ref: Annotated[
        SecretRefFields | None,
        "A kubernetes.io/tls Secret that holds our certificate and its key. unset = none.",
    ] = None
    server_name: Annotated[
        str | None,
        Keywords(minLength=1, maxLength=253),
        matches(
            r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
            "write a host name, such as hooks.example.com",
        ),
        "Name to expect in the receiver's certificate. unset = the host of the address.",
    ] = None
    insecure_skip_verify: Annotated[
        bool | None,
        "Do not check the receiver's certificate; only where the operator's settings allow it. "
        "unset = false.",
    ] = None


class RetryFields(Fields):
    """What is tried again, and for how long. unset = the defaults of its fields."""

    max_attempts: Annotated[Int32 | None, within(1, 100), "Attempts in all. unset = 20."] = None
    initial_backoff: Annotated[
        Duration | None,
        "Longest pause before the second attempt; it doubles with each further one, and the pause "
        "taken is a random part of it. unset = 5s.",
    ] = None
    max_backoff: Annotated[Duration | None, "Longest pause between two attempts. unset = 15m."] = (
        None
    )
    max_age: Annotated[
        Duration | None,
        "A delivery older than this, counted from slot and jitter, is abandoned. unset = 24h.",
    ] = None
    retry_on: Annotated[
        tuple[_Retried, ...] | None,
        Keywords(maxItems=32),
        ATOMIC,
        'What is worth another attempt - status codes as text, ranges, classes, and "network" for '
        'errors without an answer. unset = ["408", "409", "425", "429", "5xx", "network"].',
    ] = None


class WebhookFields(Fields):
    """Target: an HTTP request for each slot, signed if wanted and retried through the queue."""

    url: Annotated[
        str | None,
        Keywords(maxLength=2048),
        matches(
            r"^https?://([[][0-9A-Fa-f:.]+[]]|[A-Za-z0-9._-]+)(:[1-9][0-9]{0,4})?([/?][!-~]*)?$",
            "write http:// or https://, a host, at most a port, and a path without blanks, such "
            "as https://hooks.example.com/nightly; write a user and password into webhook.auth, "
            "names outside ASCII are written as xn--...",
            shown=shown,
        ),
        lacks(
            "#",
            "take # and what follows it out: a fragment is never sent to a server (write %23 for "
            "the character itself)",
            shown=shown,
        ),
        lacks(
            r"^[a-z]+://[^/?]*:(6553[6-9]|655[4-9][0-9]|65[6-9][0-9]{2}|6[6-9][0-9]{3}"
            r"|[7-9][0-9]{4})([/?]|$)",
            "write a port from 1 to 65535",
            shown=shown,
        ),
        lacks(r"^[a-z]+://[^/?:]{254}", "write a host name of at most 253 characters", shown=shown),
        "Address to call, http or https. The egress rules of the installation must allow a "
        "private address. Exactly one of url, urlFrom and service.",
    ] = None
    url_from: Annotated[
        FromSecretFields | None,
        "Address to call if it is itself a credential, as with many chat services. Status, events "
        "and columns never show it. unset = url or service. Exactly one of url, urlFrom and "
        "service.",
    ] = None
    service: ServiceFields | None = None
    method: Annotated[
        str | None, choices("POST", "PUT", "PATCH", "GET", "DELETE", default="POST"), "HTTP method."
    ] = None
    format: Annotated[
        str | None,
        choices("Standard", "CloudEventsBinary", "CloudEventsStructured", "Raw"),
        "Shape of the body - Standard Webhooks, CloudEvents in either mode, or the bare payload. "
        "unset = Standard.",
    ] = None
    headers: Annotated[
        tuple[HeaderFields, ...] | None,
        Keywords(maxItems=32),
        keyed_by("name"),
        "Further headers, each with exactly one of value and valueFrom. unset = none.",
    ] = None
    signing: SigningFields | None = None
    auth: AuthFields | None = None
    tls: TlsFields | None = None
    timeout_seconds: Annotated[
        Int32 | None,
        within(1, 300),
        "Time for one attempt, with 5 s of it for connecting. unset = 30.",
    ] = None
    success: Annotated[
        tuple[_Status, ...] | None,
        Keywords(minItems=1, maxItems=16),
        ATOMIC,
        'Status codes that count as success, such as "204", "200-299" or "2xx". unset = ["2xx"].',
    ] = None
    retry: RetryFields | None = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "webhook.",
            url="any address",
            urlFrom="an address in a Secret",
            service="a Service of this namespace",
        ),
        Rule(
            cel="!has(self.auth) || !has(self.headers) || self.headers.all(header, "
            "header.name.lowerAscii() != 'authorization')",
            message="auth already sends the Authorization header: take that header out, or take "
            "auth out",
            holds=_has_one_authorization,
            path="headers",
        ),
    )
