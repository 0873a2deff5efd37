"""What a request that was not answered means for the webhook.

Turns exceptions into ``answers.Trouble``. Messages name the kind of trouble in our words, because
the texts of exceptions may repeat what was sent, addresses included.
"""

from __future__ import annotations

import os
import ssl

from duepoint.net import connections, dialling, http1, ownservers
from duepoint.schedules.conditions import Reason
from duepoint.targets import answers


def no_answer(seconds: float) -> answers.Trouble:
    return _late(f"no answer within {seconds:.3g} s")


def no_connection(host: str, seconds: float) -> answers.Trouble:
    within = min(seconds, connections.CONNECT_SECONDS)
    return _late(f"no connection to {host} within {within:.3g} s")


def trouble(error: Exception, host: str) -> answers.Trouble:
    """The trouble behind any error but a missed deadline."""
    cause = error.__cause__ if isinstance(error, connections.NotConnected) else None
    if isinstance(cause, dialling.Blocked):
        return answers.Trouble(
            reason=Reason.BLOCKED_ADDRESS,
            message=f"{host} may not be called: {cause}",
            code_class="blocked",
            final=True,
        )
    if isinstance(cause, ownservers.Unready):
        message = f"nothing was sent: {cause}"
        return answers.Trouble(reason=Reason.NETWORK, message=message, unsent=True)
    # A certificate that is refused is a ValueError as well.
    if isinstance(cause or error, ValueError) and not isinstance(cause or error, OSError):
        message = f"{host}: the URL cannot be called"
        return answers.Trouble(reason=Reason.INVALID_WEBHOOK, message=message, final=True)
    said = _wording(error) if cause is None else _connecting_wording(cause)
    return answers.Trouble(reason=Reason.NETWORK, message=f"{host}: {said}")


def _late(message: str) -> answers.Trouble:
    return answers.Trouble(reason=Reason.TIMEOUT, message=message, code_class="timeout")


def _wording(error: Exception) -> str:
    if isinstance(error, http1.NotHttp):
        return "what it answered is not HTTP"
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
