"""Why nothing was delivered, before or instead of an answer; and texts that may be shown.

Every target that asks a server uses it. A text of such a server is shown in one line, bounded, and
without any value that was read from a Secret. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.schedules.conditions import Reason

#: How much of a text is shown, in bytes.
EXCERPT_BYTES = 1024

#: Values shorter than this are no secrets, and replacing them would garble the text.
_SHORTEST_SECRET = 8
_SHORTEST_CUT = 4
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """No answer.

    Attributes:
        code_class: the metric's label in place of ``2xx``.
        final: whether trying again cannot help.
        unsent: nothing was sent because something of ours was missing: tried again, and the
            rule of the webhook, which is about receivers, does not count.
    """

    reason: Reason
    message: str
    code_class: str = "error"
    final: bool = False
    unsent: bool = False


def excerpt(body: bytes, shown: Iterable[str] = (), unspeakable: Iterable[str] = ()) -> str:
    """The start of a text as one readable line, without texts that were sent as secrets.

    Args:
        body: the text; secrets are looked for before it is cut.
        shown: values that stand in the spec and might be secrets all the same; short ones, which
            would garble the text, are left alone.
        unspeakable: values read from Secrets. Where one too short to be cut out is in the text,
            nothing of the text is kept.
    """
    if not body:
        return ""
    text = body.decode(errors="replace")
    for secret in sorted(unspeakable, key=len, reverse=True):
        if len(secret) < _SHORTEST_CUT and secret and secret in text:
            return "[redacted]"
        if secret:
            text = text.replace(secret, "[redacted]")
    for value in shown:
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "[redacted]")
    return _UNPRINTABLE.sub(" ", text)[:EXCERPT_BYTES].strip()
