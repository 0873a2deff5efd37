"""``signing``, ``auth``, ``tls`` and ``headers`` of a webhook -> what an action says of them.

Owns the fields that name Secrets, ConfigMaps and ServiceAccounts. None of them has a namespace: it
is always the Schedule's own. The objects are not read here; the worker, which alone may read
them, finds out whether they exist. Errors are reported one by one, with the
field's path. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from duepoint import errors
from duepoint.schedules import actions

#: Called with the field's path and what is wrong with it.
Report = Callable[[str, str], None]

_MOST_SIGNING_SECRETS = 8
_MOST_HEADERS = 32
_MOST_HEADER_BYTES = 64 * 1024

_TOKEN = re.compile(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_OBJECT = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_KEY = re.compile(r"^[-._a-zA-Z0-9]{1,253}\Z")
_HOST = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")

# A user's header must not change whom we talk to, how the body is framed, or who signed it.
_FORBIDDEN_HEADERS = frozenset(
    {
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
#: Values of these are credentials, and the spec is read by more people than a Secret.
_CREDENTIALS = frozenset({"authorization", "cookie"})


class ValueFromFields(msgspec.Struct, rename="camel"):
    secret_key_ref: actions.SecretKey | None = None


class HeaderFields(msgspec.Struct, rename="camel"):
    name: str
    value: str | None = None
    value_from: ValueFromFields | None = None


class SigningFields(msgspec.Struct, rename="camel"):
    secret_key_refs: tuple[actions.SecretKey, ...] | None = None


class BearerFields(msgspec.Struct, rename="camel"):
    secret_key_ref: actions.SecretKey


class NameFields(msgspec.Struct):
    name: str


class BasicFields(msgspec.Struct, rename="camel"):
    secret_ref: NameFields


class AccountTokenFields(msgspec.Struct, rename="camel"):
    service_account_name: str
    audience: str


class AuthFields(msgspec.Struct, rename="camel"):
    bearer: BearerFields | None = None
    basic: BasicFields | None = None
    service_account_token: AccountTokenFields | None = None


class CaFields(msgspec.Struct, rename="camel"):
    key: str
    config_map: str | None = None
    secret: str | None = None


class TlsFields(msgspec.Struct, rename="camel"):
    ca_ref: CaFields | None = None
    client_certificate_secret_ref: NameFields | None = None
    server_name: str | None = None
    insecure_skip_verify: bool | None = None


# -- headers ---------------------------------------------------------------------------------


def headers(
    fields: tuple[HeaderFields, ...], cloud_events: str, *, authorized: bool, report: Report
) -> tuple[actions.Header, ...]:
    """The user's headers.

    Args:
        fields: as they were written.
        cloud_events: the format if it is one of CloudEvents, which owns headers; else empty.
        authorized: whether ``auth`` sends the Authorization header.
        report: called with what is wrong.
    """
    if len(fields) > _MOST_HEADERS:
        report("spec.webhook.headers", f"has {len(fields)} entries; write at most {_MOST_HEADERS}")
    if sum(len(header.name) + len(header.value or "") for header in fields) > _MOST_HEADER_BYTES:
        report("spec.webhook.headers", f"is larger than {_MOST_HEADER_BYTES} bytes; shorten it")
    made = []
    for index, field in enumerate(fields):
        path = f"spec.webhook.headers[{index}]"
        if trouble := _header_trouble(field, cloud_events, authorized=authorized):
            report(path, trouble)
        made.append(_header(field, path, report))
    return tuple(made)


def _header(field: HeaderFields, path: str, report: Report) -> actions.Header:
    reference = None if field.value_from is None else field.value_from.secret_key_ref
    if reference is None:
        return actions.Header(name=field.name, value=field.value or "")
    secret = _secret_key(reference, f"{path}.valueFrom.secretKeyRef", report)
    return actions.Header(name=field.name, value="", secret=secret)


def _header_trouble(field: HeaderFields, cloud_events: str, *, authorized: bool) -> str:
    name = field.name.lower()
    shown = errors.quoted(field.name)
    if not _TOKEN.match(field.name):
        return f"{shown} is no header name"
    if name in _FORBIDDEN_HEADERS or name.startswith("webhook-"):
        return f"{shown} is set by Duepoint; remove it"
    if cloud_events and (name.startswith("ce-") or name == "content-type"):
        return f"{shown} is set by format {cloud_events}; remove it"
    if name == "authorization" and authorized:
        return f"{shown} is set by spec.webhook.auth; remove one of the two"
    return _value_trouble(field, name, shown)


def _value_trouble(field: HeaderFields, name: str, shown: str) -> str:
    if field.value is None and field.value_from is None:
        return f"the value of {shown} is missing; write value or valueFrom"
    if field.value is not None and field.value_from is not None:
        return f"{shown} has both value and valueFrom; remove one of the two"
    if field.value_from is not None:
        return "" if field.value_from.secret_key_ref else "write valueFrom.secretKeyRef"
    if name in _CREDENTIALS:
        return f"{shown} is a credential; write valueFrom.secretKeyRef, or use spec.webhook.auth"
    return f"the value of {shown} has control characters" * is_unsendable(field.value or "")


def is_unsendable(value: str) -> bool:
    """Whether a header with this value would end its line, or be cut by a proxy on the way."""
    return any((char < " " and char != "\t") or char == "\x7f" for char in value)


# -- the receiver's address ----------------------------------------------------------------------


def url(fields: ValueFromFields | None, report: Report) -> actions.SecretKey | None:
    """The key that holds the URL."""
    if fields is None:
        return None
    path = "spec.webhook.urlFrom"
    if fields.secret_key_ref is None:
        report(path, "write urlFrom.secretKeyRef")
        return None
    return _secret_key(fields.secret_key_ref, f"{path}.secretKeyRef", report)


# -- signing, auth, tls ------------------------------------------------------------------------


def signing(fields: SigningFields | None, report: Report) -> tuple[actions.SecretKey, ...]:
    """The keys that hold the signing secrets; all of them sign."""
    if fields is None:
        return ()
    path = "spec.webhook.signing.secretKeyRefs"
    listed = fields.secret_key_refs or ()
    if not 1 <= len(listed) <= _MOST_SIGNING_SECRETS:
        report(path, f"has {len(listed)} entries; write 1 to {_MOST_SIGNING_SECRETS}")
    return tuple(_secret_key(ref, f"{path}[{index}]", report) for index, ref in enumerate(listed))


def auth(
    fields: AuthFields | None, report: Report
) -> actions.Bearer | actions.Basic | actions.AccountToken | None:
    """How we say who we are."""
    if fields is None:
        return None
    path = "spec.webhook.auth"
    given = (fields.bearer, fields.basic, fields.service_account_token)
    if sum(field is not None for field in given) != 1:
        report(path, "write exactly one of bearer, basic and serviceAccountToken")
    if fields.bearer is not None:
        reference = fields.bearer.secret_key_ref
        return actions.Bearer(secret=_secret_key(reference, f"{path}.bearer.secretKeyRef", report))
    if fields.basic is not None:
        name = _name(fields.basic.secret_ref.name, f"{path}.basic.secretRef.name", report)
        return actions.Basic(secret_name=name)
    if fields.service_account_token is not None:
        return _account_token(fields.service_account_token, f"{path}.serviceAccountToken", report)
    return None


def _account_token(fields: AccountTokenFields, path: str, report: Report) -> actions.AccountToken:
    if not fields.audience.strip() or not fields.audience.isprintable():
        report(f"{path}.audience", "is empty; write whom the token is for, such as billing.example")
    return actions.AccountToken(
        account=_name(fields.service_account_name, f"{path}.serviceAccountName", report),
        audience=fields.audience,
    )


def tls(fields: TlsFields | None, report: Report) -> actions.Tls | None:
    """How the receiver's certificate is checked, and ours shown."""
    if fields is None:
        return None
    path = "spec.webhook.tls"
    if fields.server_name is not None and not _HOST.match(fields.server_name):
        report(f"{path}.serverName", f"{errors.quoted(fields.server_name)} is no host name")
    certificate = fields.client_certificate_secret_ref
    return actions.Tls(
        ca=None if fields.ca_ref is None else _ca(fields.ca_ref, f"{path}.caRef", report),
        client_certificate=None
        if certificate is None
        else _name(certificate.name, f"{path}.clientCertificateSecretRef.name", report),
        server_name=fields.server_name,
        insecure_skip_verify=bool(fields.insecure_skip_verify),
    )


def _ca(fields: CaFields, path: str, report: Report) -> actions.CaRef:
    if (fields.config_map is None) == (fields.secret is None):
        report(path, "write exactly one of configMap and secret")
    kind, name = ("Secret", fields.secret) if fields.secret else ("ConfigMap", fields.config_map)
    _check(fields.key, _KEY, f"{path}.key", "key", report)
    return actions.CaRef(kind=kind, name=_name(name or "x", path, report), key=fields.key)


def _secret_key(fields: actions.SecretKey, path: str, report: Report) -> actions.SecretKey:
    _check(fields.key, _KEY, f"{path}.key", "key", report)
    _check(fields.name, _OBJECT, f"{path}.name", "name", report)
    return fields


def _name(name: str, path: str, report: Report) -> str:
    _check(name, _OBJECT, path, "name", report)
    return name


def _check(text: str, pattern: re.Pattern[str], path: str, what: str, report: Report) -> None:
    if not pattern.match(text):
        report(path, f"{errors.quoted(text)} is no {what} of an object of this namespace")
