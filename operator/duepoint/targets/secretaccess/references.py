"""One key of one object that a webhook names: read, or what to do so that it can be read.

Each failure names the field of the spec, the object and the remedy; for missing rights that is the
very command an admin of the namespace runs. Whether it is then tried again is the caller's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from duepoint.kube import errors, secrets
from duepoint.schedules import actions, webhooksecrets
from duepoint.targets.secretaccess import consent, secretcache

#: Longest header value made of a Secret, in bytes; most receivers take no longer line.
_MOST_HEADER_BYTES = 16 * 1024

ACCOUNT = "ServiceAccount"

_USER = re.compile(r'User "(?:system:serviceaccount:([^:"]+):([^"]+)|([^"]+))"')


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
    receiver: consent.Receiver | None = None

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


class Denied(Exception):
    """The worker has no right to it."""

    def __init__(self, to: Reference, error: errors.Forbidden) -> None:
        super().__init__(to.path)
        self.to = to
        self.error = error


def secret(
    path: str, namespace: str, name: str, receiver: consent.Receiver | None = None
) -> Reference:
    """A Secret that stands at this field, and where what it holds is to go."""
    return Reference(path=path, kind="Secret", namespace=namespace, name=name, receiver=receiver)


def require_any_consent(to: Reference, data: secrets.Data) -> None:
    """Raise Withheld unless the Secret may be sent somewhere; where to is not known yet."""
    if consent.SEND_TO not in data.annotations:
        raise Withheld(
            to,
            f"{to.object} may not be sent anywhere, because its annotation {consent.SEND_TO} is "
            f"missing; who owns the Secret allows it with: kubectl annotate secret {to.name} "
            f"-n {to.namespace} {consent.SEND_TO}=HOST, the host of the address in it",
        )


def require_consent(to: Reference, data: secrets.Data, receiver: consent.Receiver) -> None:
    """Raise Withheld unless the Secret's annotation names the receiver."""
    if consent.may_send(data.annotations, receiver):
        return
    has = "names others" if consent.SEND_TO in data.annotations else "is missing"
    raise Withheld(
        to,
        f"{to.object} may not be sent to {receiver}, because its annotation {consent.SEND_TO} "
        f"{has}; who owns the Secret allows it with: kubectl annotate --overwrite secret {to.name} "
        f"-n {to.namespace} {consent.SEND_TO}={receiver}",
    )


def authorities(namespace: str, ca: actions.CaRef) -> Reference:
    """The object with the certificate authorities."""
    return Reference(path="spec.webhook.tls.caRef", kind=ca.kind, namespace=namespace, name=ca.name)


class Keys:
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
        """What the key holds; raises Missing, Withheld, Denied, and errors.Unavailable."""
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
            raise Denied(to, error) from None
        except errors.Invalid as error:
            raise Missing(to, f"{to.object} cannot be read: {error}") from None


def permission(denied: Denied, reader_role: str) -> str:
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
