"""Reads single keys of the objects that a target names, and checks their owners' consent.

Each failure (``Unread``) names the field of the spec, the object and the remedy. For missing rights
the remedy is the exact command for an admin of the namespace. Objects are cached: an object is
fresh for a minute, a token for most of its life and never after its end.

A user who may create a Schedule in a namespace chooses Secrets and receivers, but may not be
allowed to read a Secret there. So a Secret is sent nowhere unless its annotation lists the
receiver, and tokens are requested only for audiences that an annotation on the account lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint.kube import errors, port, secrets
from duepoint.net import addresses
from duepoint.schedules import specfields
from duepoint.schedules.conditions import Reason
from duepoint.targets import memory, target

#: Longest header value made from a Secret, in bytes; most receivers accept no longer line.
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
    """Where a Secret would be sent; the host without brackets.

    Attributes:
        port: None = unknown until the Service is looked up, because the spec gives a port name.
    """

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A field of the spec and the object that it names.

    Attributes:
        receiver: who gets the Secret's content, or gets a login with it; None if nothing is sent.
    """

    path: str
    kind: str
    namespace: str
    name: str
    receiver: Receiver | None = None

    @property
    def object(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def missing(self, message: str) -> Unread:
        """Return the error that the object is missing or may not be used."""
        return Unread(unread(Reason.SECRET_UNAVAILABLE, f"{self.path}: {message}"))

    def unusable(self, key: str, what: str) -> Unread:
        """Return the error that the value of a key cannot be used."""
        return self.missing(f"key {key} of {self.object} {what}")


class Unread(Exception):
    """An object cannot be used now.

    Attributes:
        trouble: why; whatever is missing, withheld or denied may be corrected at any time.
    """

    def __init__(self, trouble: target.Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def unread(reason: Reason, message: str) -> target.Trouble:
    """Return the trouble of a delivery that lacks something from a Secret and was not sent."""
    return target.Trouble(reason=reason, message=message, code_class="secret", unsent=True)


def secret(path: str, namespace: str, name: str, receiver: Receiver | None = None) -> Reference:
    """Return the reference to a Secret, with the field that names it and the receiver."""
    return Reference(path=path, kind="Secret", namespace=namespace, name=name, receiver=receiver)


def require_any_consent(to: Reference, data: secrets.Data) -> None:
    """Raise Unread unless the Secret may be sent somewhere; its receiver is not known yet."""
    if SEND_TO not in data.annotations:
        raise to.missing(
            f"{to.object} may not be sent anywhere, because its annotation {SEND_TO} is "
            f"missing; the Secret's owner allows it with: kubectl annotate secret {to.name} "
            f"-n {to.namespace} {SEND_TO}=HOST, the host of the address in it",
        )


def require_consent(to: Reference, data: secrets.Data, receiver: Receiver) -> None:
    """Raise Unread unless the Secret's annotation names the receiver."""
    if may_send(data.annotations, receiver):
        return
    has = "names others" if SEND_TO in data.annotations else "is missing"
    raise to.missing(
        f"{to.object} may not be sent to {receiver}, because its annotation {SEND_TO} "
        f"{has}; the Secret's owner allows it with: kubectl annotate --overwrite secret {to.name} "
        f"-n {to.namespace} {SEND_TO}={receiver}",
    )


class KeyReader:
    """Reads single keys.

    Args:
        reader_role: the ClusterRole that an admin binds to let the worker read Secrets.
    """

    def __init__(self, objects: Objects, reader_role: str) -> None:
        self._objects = objects
        self._reader_role = reader_role

    async def line(self, to: Reference, key: str) -> str:
        """Return one line of ASCII for a header; drop blanks around it as accidents."""
        text = (await self.text(to, key)).strip()
        if not text or specfields.is_unsendable(text) or not text.isascii():
            raise to.unusable(key, "is not one line of printable ASCII")
        if len(text) > _MOST_HEADER_BYTES:
            what = f"has {len(text)} bytes; a header holds at most {_MOST_HEADER_BYTES}"
            raise to.unusable(key, what)
        return text

    async def text(self, to: Reference, key: str) -> str:
        """Return the value as UTF-8 text; raises Unread."""
        try:
            return (await self.content(to, key)).decode()
        except UnicodeDecodeError:
            raise to.unusable(key, "is binary; write text") from None

    async def content(self, to: Reference, key: str) -> bytes:
        """Return the value of the key; raises Unread."""
        data = await self.whole(to)
        if key not in data.values:
            raise to.missing(f"{to.object} has no key {key}; write it there, or correct the name")
        return data.values[key]

    async def whole(self, to: Reference) -> secrets.Data:
        """Return the object with all its keys; raises Unread."""
        try:
            data = await self._objects.get(to.namespace, (to.kind, to.name))
        except errors.ApiError as error:
            raise self.refused(to, error) from None
        if to.receiver is not None:
            require_consent(to, data, to.receiver)
        return data

    def refused(self, to: Reference, error: errors.ApiError) -> Unread:
        """Return the error for a request that the API server refused or did not answer."""
        match error:
            case errors.NotFound():
                return to.missing(f"{to.object} does not exist; create it")
            case errors.Forbidden():
                message = _permission(to, error, self._reader_role)
                return Unread(unread(Reason.SECRET_UNAVAILABLE, message))
            case errors.Unavailable():
                message = f"{to.object} cannot be read: {error}"
                return Unread(unread(Reason.API_UNAVAILABLE, message))
            case _:
                return to.missing(f"{to.object} cannot be read: {error}")


def _permission(to: Reference, error: errors.Forbidden, reader_role: str) -> str:
    """Return what is forbidden and the command that allows it to the user in the error."""
    subject = "--serviceaccount=NAMESPACE:NAME"
    if (asked := _USER.search(str(error))) is not None:
        namespace, account, user = asked.groups()
        subject = f"--serviceaccount={namespace}:{account}" if account else f"--user={user}"
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


# -- consent ---------------------------------------------------------------------------------------


def may_send(annotations: Mapping[str, str], to: Receiver) -> bool:
    """Whether the annotations of a Secret list the receiver.

    An entry is a host or an address, ``*.example.com`` for every host below a domain, or ``*``.
    With ``:port`` it matches that port only, and no receiver whose port is unknown. Case does not
    matter.
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


# -- caches --------------------------------------------------------------------------------------

Objects = memory.Memory[tuple[str, str], secrets.Data]
"""Key: ``Secret``, ``ConfigMap`` or ``ServiceAccount``, and the name."""
Tokens = memory.Memory[tuple[str, str], secrets.Token]
"""Key: the ServiceAccount's name, and the audience."""

#: A token is renewed after this part of its life, and not used in its last seconds.
_TOKEN_FRESH = 0.75
_TOKEN_MARGIN_SECONDS = 15.0


def objects_of(api: port.Api, clock: clocks.Clock) -> Objects:
    """Return a cache of this API server's Secrets, ConfigMaps and ServiceAccounts."""

    async def look(namespace: str, key: tuple[str, str]) -> memory.Life[secrets.Data]:
        data = await secrets.read(api, key[0], namespace, key[1])
        return memory.Life(value=data, size=data.size)

    return memory.Memory(look, clock)


def tokens_of(api: port.Api, clock: clocks.Clock) -> Tokens:
    """Return a cache of tokens that this API server issues."""

    async def look(namespace: str, key: tuple[str, str]) -> memory.Life[secrets.Token]:
        token = await secrets.token(api, namespace, *key)
        left = (token.expires_us - clock.now_us()) / 1_000_000
        # If our clock is wrong, the token must neither live for ever nor be renewed each time.
        life = min(max(left, 60.0), float(secrets.TOKEN_SECONDS))
        return memory.Life(
            value=token,
            fresh_seconds=life * _TOKEN_FRESH,
            usable_seconds=life - _TOKEN_MARGIN_SECONDS,
            size=len(token.text),
        )

    return memory.Memory(look, clock)
