"""From what a receiver said, or failed to say, to an outcome.

Owns the rules of ``spec.webhook.success`` and ``retry.retryOn``, of 410 and of ``Retry-After``
(RFC 9110, 10.2.3). The status line decides: whatever the body does afterwards changes nothing. No
text of a receiver goes into an outcome: outcomes are shown to readers of the Schedule, and the
receiver may be a server that its author could not ask directly. Pure; times are arguments.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason

#: How much of a text is shown, in bytes.
EXCERPT_BYTES = 1024
#: The word of ``retryOn`` for everything that is not a status.
NETWORK = "network"

_SECOND_US = 1_000_000
#: Retry-After counts where the receiver says that it is busy, and nowhere else.
_BUSY = frozenset({429, 503})
#: Values shorter than this are no secrets, and replacing them would garble the text.
_SHORTEST_SECRET = 8
_SHORTEST_CUT = 4
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A receiver's answer, without its text."""

    status: int
    retry_after: str | None = None

    @property
    def code_class(self) -> str:
        return f"{self.status // 100}xx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """No answer.

    Attributes:
        code_class: the metric's label in place of ``2xx``.
        final: whether trying again cannot help.
        unsent: nothing was sent because something of ours was missing: tried again whatever the
            rule of the webhook says of receivers.
    """

    reason: Reason
    message: str
    code_class: str = "error"
    final: bool = False
    unsent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When: of the answer, and of the slot's due, from which ``maxAge`` counts."""

    now_us: int
    due_us: int


def judge(answer: Answer | Trouble, webhook: actions.WebhookAction, at: Times) -> outcome.Outcome:
    """What follows from an answer, or from its absence."""
    if isinstance(answer, Trouble):
        return _after_trouble(answer, webhook)
    status = answer.status
    if matches(status, webhook.success):
        return outcome.Delivered(accepted_us=at.now_us, http_status=status)
    if status == 410:
        message = f"answered {status}; the receiver says that it is gone for good"
        return outcome.Rejected(reason=Reason.ENDPOINT_GONE, message=message, http_status=status)
    if matches(status, webhook.retry.retry_on):
        return outcome.Retry(
            reason=Reason.REJECTED,
            message=f"answered {status}",
            after_us=_after_us(answer, webhook, at),
            http_status=status,
        )
    hint = "; redirects are not followed, write the final URL" if 300 <= status < 400 else ""
    message = f"answered {status}{hint}"
    return outcome.Rejected(reason=Reason.REJECTED, message=message, http_status=status)


@functools.lru_cache(maxsize=1024)
def matches(status: int, patterns: tuple[str, ...]) -> bool:
    """Whether a status is one of ``204``, ``200-299``, ``2xx``; other words match nothing."""
    return any(_matches(status, pattern) for pattern in patterns)


def _matches(status: int, pattern: str) -> bool:
    if pattern.endswith("xx"):
        return pattern[:-2] == str(status // 100)
    first, _, last = pattern.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        return False
    return int(first) <= status <= int(last or first)


def retry_after_us(text: str, now_us: int) -> int | None:
    """How long a Retry-After asks to wait, at least 1 s; None where it is neither form."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return max(int(text[:12]) * _SECOND_US, _SECOND_US)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return max(int(zoned.timestamp()) * _SECOND_US - now_us, _SECOND_US)


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


def _after_trouble(trouble: Trouble, webhook: actions.WebhookAction) -> outcome.Outcome:
    is_tried_again = trouble.unsent or NETWORK in webhook.retry.retry_on
    if trouble.final or not is_tried_again:
        return outcome.Rejected(reason=trouble.reason, message=trouble.message)
    return outcome.Retry(reason=trouble.reason, message=trouble.message)


def _after_us(answer: Answer, webhook: actions.WebhookAction, at: Times) -> int | None:
    """The receiver's wish, but never past ``maxAge``: the last attempt falls just inside it."""
    if answer.status not in _BUSY or answer.retry_after is None:
        return None
    wish_us = retry_after_us(answer.retry_after, at.now_us)
    if wish_us is None:
        return None
    room_us = at.due_us + webhook.retry.max_age_us - at.now_us - _SECOND_US
    return max(min(wish_us, room_us), _SECOND_US)
