"""One key of one object that a webhook names: read, or what to do so that it can be read.

Each failure names the field of the spec, the object and the remedy; for missing rights that is the
very command an admin of the namespace runs. Whether it is then tried again is the caller's.

A user who may create a Schedule in a namespace names Secrets and receivers, and need not be allowed
to read a Secret there. So a Secret is sent nowhere unless an annotation on it lists the receiver,
and a token is asked for only for the audiences that an annotation on its account lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from duepoint.kube import errors, secrets
from duepoint.net import addresses
from duepoint.schedules import actions, webhooksecrets
from duepoint.targets.secretaccess import secretcache

#: Longest header value made of a Secret, in bytes; most receivers take no longer line.
_MOST_HEADER_BYTES = 16 * 1024

#: On a Secret: receivers, separated by commas or blanks, or ``*`` for any.
SEND_TO = "duepoint.dev/send-to"
#: On a ServiceAccount: audiences, separated by commas or blanks.
TOKEN_AUDIENCES = "duepoint.dev/token-audiences"  # noqa: S105 - the name of an annotation

_SEPARATORS = re.compile(r"[,\s]+")
_ENTRY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\[\]:]+)(:(?P<port>[0-9]{1,5}))?")

ACCOUNT = "ServiceAccount"

_USER = re.compile(r'User "(?:system:serviceaccount:([^:"]+):([^"]+)|([^"]+))"')


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where something would be sent; the host without brackets.

    Attributes:
        port: None = not known before the Service is looked up, which gives its port by a name.
    """

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The field that names an object, and the object.

    Attributes:
        receiver: who will get what a Secret holds, or what it opens; None where nothing of it is
            sent.
    """

    path: str
    kind: str
    namespace: str
    name: str
    receiver: Receiver | None = None

    @property
    def object(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Missing(Exception):
    """It leads to nothing usable now."""

    def __init__(self, to: Reference, message: str) -> None:
        super().__init__(f"{to.path}: {message}")


class Withheld(Exception):
    """Its owner has not said that it may go there."""

    def __init__(self, to: Reference, message: str) -> None:
        super().__init__(f"{to.path}: {message}")


class ReadDenied(Exception):
    """The worker has no right to it."""

    def __init__(self, to: Reference, error: errors.Forbidden) -> None:
        super().__init__(to.path)
        self.to = to
        self.error = error


def secret(path: str, namespace: str, name: str, receiver: Receiver | None = None) -> Reference:
    """A Secret that stands at this field, and where what it holds is to go."""
    return Reference(path=path, kind="Secret", namespace=namespace, name=name, receiver=receiver)


def require_any_consent(to: Reference, data: secrets.Data) -> None:
    """Raise Withheld unless the Secret may be sent somewhere; where to is not known yet."""
    if SEND_TO not in data.annotations:
        raise Withheld(
            to,
            f"{to.object} may not be sent anywhere, because its annotation {SEND_TO} is "
            f"missing; who owns the Secret allows it with: kubectl annotate secret {to.name} "
            f"-n {to.namespace} {SEND_TO}=HOST, the host of the address in it",
        )


def require_consent(to: Reference, data: secrets.Data, receiver: Receiver) -> None:
    """Raise Withheld unless the Secret's annotation names the receiver."""
    if may_send(data.annotations, receiver):
        return
    has = "names others" if SEND_TO in data.annotations else "is missing"
    raise Withheld(
        to,
        f"{to.object} may not be sent to {receiver}, because its annotation {SEND_TO} "
        f"{has}; who owns the Secret allows it with: kubectl annotate --overwrite secret {to.name} "
        f"-n {to.namespace} {SEND_TO}={receiver}",
    )


def authorities(namespace: str, ca: actions.CaRef) -> Reference:
    """The object with the certificate authorities."""
    return Reference(path="spec.webhook.tls.caRef", kind=ca.kind, namespace=namespace, name=ca.name)


class KeyReader:
    """Reads single keys."""

    def __init__(self, objects: secretcache.Objects) -> None:
        self._objects = objects

    async def line(self, to: Reference, key: str) -> str:
        """A value that goes into a header: one line; blanks around it are an accident."""
        text = (await self.text(to, key)).strip()
        if not text or webhooksecrets.is_unsendable(text) or not text.isascii():
            raise Missing(to, f"key {key} of {to.object} is not one line of printable ASCII")
        if len(text) > _MOST_HEADER_BYTES:
            raise Missing(
                to,
                f"key {key} of {to.object} has {len(text)} bytes; a header holds at most "
                f"{_MOST_HEADER_BYTES}",
            )
        return text

    async def text(self, to: Reference, key: str) -> str:
        """Text in UTF-8."""
        try:
            return (await self.content(to, key)).decode()
        except UnicodeDecodeError:
            raise Missing(to, f"key {key} of {to.object} is binary; write text") from None

    async def content(self, to: Reference, key: str) -> bytes:
        """What the key holds; raises Missing, Withheld, ReadDenied, and errors.Unavailable."""
        data = await self.whole(to)
        if key not in data.values:
            raise Missing(to, f"{to.object} has no key {key}; write it there, or correct the name")
        return data.values[key]

    async def whole(self, to: Reference) -> secrets.Data:
        """The object with all its keys; raises as ``content``."""
        data = await self._found(to)
        if to.receiver is not None:
            require_consent(to, data, to.receiver)
        return data

    async def _found(self, to: Reference) -> secrets.Data:
        try:
            return await self._objects.get(to.namespace, (to.kind, to.name))
        except errors.NotFound:
            raise Missing(to, f"{to.object} does not exist; create it") from None
        except errors.Forbidden as error:
            raise ReadDenied(to, error) from None
        except errors.Invalid as error:
            raise Missing(to, f"{to.object} cannot be read: {error}") from None


def permission(denied: ReadDenied, reader_role: str) -> str:
    """What is not allowed, and the command that allows it."""
    to, subject = denied.to, _subject(denied.error)
    if to.kind == ACCOUNT:
        name = f"duepoint-token-{to.name}"
        what = "make tokens of"
        line = (
            f"kubectl create role {name} -n {to.namespace} --verb=get,create "
            f"--resource=serviceaccounts,serviceaccounts/token --resource-name={to.name} && "
            f"kubectl create rolebinding {name} -n {to.namespace} --role={name} {subject}"
        )
    else:
        what = "read"
        line = (
            f"kubectl create rolebinding {reader_role} -n {to.namespace} "
            f"--clusterrole={reader_role} {subject}"
        )
    return f"{to.path}: the worker may not {what} {to.object}; allow it with: {line}"


def _subject(error: errors.Forbidden) -> str:
    """Whom to allow it: the API server's message names who asked."""
    found = _USER.search(str(error))
    if found is None:
        return "--serviceaccount=NAMESPACE:NAME"
    namespace, account, user = found.groups()
    return f"--serviceaccount={namespace}:{account}" if account else f"--user={user}"


# -- consent ---------------------------------------------------------------------------------------


def may_send(annotations: Mapping[str, str], to: Receiver) -> bool:
    """Whether the annotations of a Secret name the receiver.

    An entry is a host or an address, ``*.example.com`` for every host below a domain, or ``*``;
    with ``:port`` it means that port alone, and so no receiver whose port is not known. Case does
    not matter.
    """
    return any(_names(entry, to) for entry in _entries(annotations.get(SEND_TO, "").lower()))


def may_have_token(annotations: Mapping[str, str], audience: str) -> bool:
    """Whether the annotations of a ServiceAccount list the audience, letter for letter."""
    return audience in _entries(annotations.get(TOKEN_AUDIENCES, ""))


def _entries(text: str) -> list[str]:
    return [entry for entry in _SEPARATORS.split(text) if entry]


def _names(entry: str, to: Receiver) -> bool:
    if entry == "*":
        return True
    parts = _ENTRY.fullmatch(entry)
    if parts is None or parts["port"] not in (None, str(to.port)):
        return False
    wanted, host = parts["host"].strip("[]").rstrip("."), to.host.lower().rstrip(".")
    if wanted.startswith("*."):  # below a domain; an address has none
        return host.endswith(wanted[1:]) and addresses.parse(host) is None
    return host == wanted
