"""Outcomes of webhooks: turns a receiver's response, or its absence, into an ``Outcome``.

Owns the rules of ``spec.webhook.success`` and ``retry.retryOn``, of 410 and of ``Retry-After``
(RFC 9110, 10.2.3). Only the status line decides, not the body. No text from a receiver goes into
an outcome: readers of the Schedule see outcomes, and the receiver may be a server that they could
not call themselves. Messages about a missing response name the kind of trouble in our words. Pure;
times are arguments.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import functools
import os
import ssl

from duepoint.net import dialling, httpclient, resolving
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target

#: The value of ``retryOn`` for every failure without a status.
NETWORK = "network"

_SECOND_US = 1_000_000
#: Retry-After counts only in these answers, which say that the receiver is busy.
_BUSY = frozenset({429, 503})


def judge(
    answer: httpclient.Response | target.Trouble,
    webhook: actions.WebhookAction,
    *,
    now_us: int,
    due_us: int,
) -> outcome.Outcome:
    """Return the outcome of an answer, or of its absence.

    Args:
        now_us: when the answer came.
        due_us: when the slot was due; ``maxAge`` counts from here.
    """
    if isinstance(answer, target.Trouble):
        return _after_trouble(answer, webhook)
    status = answer.status
    if matches(status, webhook.success):
        return outcome.Delivered(accepted_us=now_us, http_status=status)
    if status == 410:
        message = f"answered {status}; the receiver says that it is gone for good"
        return outcome.Rejected(reason=Reason.ENDPOINT_GONE, message=message, http_status=status)
    if matches(status, webhook.retry.retry_on):
        return outcome.Retry(
            reason=Reason.REJECTED,
            message=f"answered {status}",
            after_us=_after_us(answer, webhook, now_us=now_us, due_us=due_us),
            http_status=status,
        )
    hint = "; redirects are not followed, write the final URL" if 300 <= status < 400 else ""
    message = f"answered {status}{hint}"
    return outcome.Rejected(reason=Reason.REJECTED, message=message, http_status=status)


@functools.lru_cache(maxsize=1024)
def matches(status: int, patterns: tuple[str, ...]) -> bool:
    """Whether a status matches a pattern (``204``, ``200-299``, ``2xx``); other words never do."""
    return any(_matches(status, pattern) for pattern in patterns)


def _matches(status: int, pattern: str) -> bool:
    if pattern.endswith("xx"):
        return pattern[:-2] == str(status // 100)
    first, _, last = pattern.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        return False
    return int(first) <= status <= int(last or first)


def retry_after_us(text: str, now_us: int) -> int | None:
    """Return how long a Retry-After asks us to wait, at least 1 s; None if it is malformed."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return max(int(text[:12]) * _SECOND_US, _SECOND_US)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # a year or an offset of any number of digits
        return None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return max(int(zoned.timestamp()) * _SECOND_US - now_us, _SECOND_US)


def _after_trouble(trouble: target.Trouble, webhook: actions.WebhookAction) -> outcome.Outcome:
    is_tried_again = trouble.unsent or NETWORK in webhook.retry.retry_on
    if trouble.final or not is_tried_again:
        return outcome.Rejected(reason=trouble.reason, message=trouble.message)
    # If nothing was sent, it counts only if the owner can mend it, not if our API server is away.
    is_attempt = not trouble.unsent or trouble.reason is Reason.SECRET_UNAVAILABLE
    return outcome.Retry(
        reason=trouble.reason, message=trouble.message, started=is_attempt, counted=is_attempt
    )


def _after_us(
    answer: httpclient.Response, webhook: actions.WebhookAction, *, now_us: int, due_us: int
) -> int | None:
    """Return the wait that the receiver asks for, cut to keep the last retry inside ``maxAge``."""
    asked = answer.headers.get("retry-after")
    if answer.status not in _BUSY or asked is None:
        return None
    wish_us = retry_after_us(asked, now_us)
    if wish_us is None:
        return None
    room_us = due_us + webhook.retry.max_age_us - now_us - _SECOND_US
    return max(min(wish_us, room_us), _SECOND_US)


# -- no response ---------------------------------------------------------------------------------


def late(message: str) -> target.Trouble:
    """Return the trouble for a missed deadline."""
    return target.Trouble(reason=Reason.NETWORK, message=message, code_class="timeout")


def trouble(error: Exception, host: str) -> target.Trouble:
    """Return the trouble for any error except a missed deadline."""
    cause = error.__cause__ if isinstance(error, httpclient.NotConnected) else None
    if isinstance(cause, dialling.Blocked):
        return target.Trouble(
            reason=Reason.BLOCKED_ADDRESS,
            message=f"{host} may not be called: {cause}",
            code_class="blocked",
            final=True,
        )
    if isinstance(cause, resolving.Unready):
        message = f"nothing was sent: {cause}"
        return target.Trouble(reason=Reason.NETWORK, message=message, unsent=True)
    # SSLCertVerificationError is an OSError and a ValueError; it is not the URL's fault.
    if isinstance(cause or error, ValueError) and not isinstance(cause or error, OSError):
        message = f"{host}: the URL cannot be called"
        return target.Trouble(reason=Reason.INVALID_SPEC, message=message, final=True)
    words = _wording(error) if cause is None else _connecting_wording(cause)
    return target.Trouble(reason=Reason.NETWORK, message=f"{host}: {words}")


def _wording(error: Exception) -> str:
    if isinstance(error, httpclient.NotHttp):
        return "its answer is not HTTP"
    if isinstance(error, ConnectionError):
        return "the connection was cut before an answer"
    return f"the request failed ({type(error).__name__})"


def _connecting_wording(error: BaseException) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            refused = getattr(error, "verify_message", "") or type(error).__name__
            return f"its certificate is refused: {refused}"
        case ssl.SSLError():
            return "TLS cannot be agreed upon"
        case dialling.Unresolved():
            return "the name cannot be resolved"
        case OSError(errno=int(number)):
            return f"cannot be reached: {os.strerror(number)}"  # asyncio's text has the address
        case _:
            return f"cannot be reached: {type(error).__name__}"
