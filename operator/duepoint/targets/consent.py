"""Whether the owner of a Secret, or of a ServiceAccount, lets it be sent to a receiver.

Whoever may create a Schedule in a namespace names Secrets and receivers, and need not be allowed to
read a Secret there. So a Secret is sent nowhere unless an annotation on it says where, and a token
is asked for only for the audiences that an annotation on its account lists. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from duepoint.net import addresses

#: On a Secret: receivers, separated by commas or blanks, or ``*`` for any.
SEND_TO = "duepoint.dev/send-to"
#: On a ServiceAccount: audiences, separated by commas or blanks.
TOKEN_AUDIENCES = "duepoint.dev/token-audiences"  # noqa: S105 - the name of an annotation

_SEPARATORS = re.compile(r"[,\s]+")
_ENTRY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\[\]:]+)(:(?P<port>[0-9]{1,5}))?")


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
