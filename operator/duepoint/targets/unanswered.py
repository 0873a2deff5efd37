"""What is told of a request that was not answered, and what follows from it.

Turns the library's exceptions into ``answers.Trouble``. Messages name the kind of trouble in our
words; the library's texts may repeat what was sent, addresses included.
"""

from __future__ import annotations

import os

import aiohttp

from duepoint.schedules.conditions import Reason
from duepoint.targets import answers, conversation, egress


def no_answer(seconds: float) -> answers.Trouble:
    return late(f"no answer within {seconds:.3g} s")


def late(message: str) -> answers.Trouble:
    return answers.Trouble(reason=Reason.TIMEOUT, message=message, code_class="timeout")


def blocked(host: str, dial: egress.Dial) -> answers.Trouble:
    return answers.Trouble(
        reason=Reason.BLOCKED_ADDRESS,
        message=f"{host} may not be called: {dial.denials[0].reason}",
        code_class="blocked",
        final=True,
    )


def unready(error: egress.Unready) -> answers.Trouble:
    return answers.Trouble(reason=Reason.NETWORK, message=f"nothing was sent: {error}", unsent=True)


def trouble(error: Exception, host: str) -> answers.Trouble:
    """Messages name the class of error; library texts may repeat what was sent."""
    if isinstance(error, egress.Unready):
        return unready(error)
    said = f"{host}: {_wording(error)}"
    if isinstance(error, aiohttp.InvalidURL | UnicodeError) or not isinstance(
        error, aiohttp.ClientError | OSError
    ):
        return answers.Trouble(reason=Reason.INVALID_WEBHOOK, message=said, final=True)
    return answers.Trouble(reason=Reason.NETWORK, message=said)


#: The first that fits is told.
_WORDINGS: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorSSLError, "TLS cannot be agreed upon"),
    (aiohttp.ClientConnectorDNSError, "the name cannot be resolved"),
    (aiohttp.ServerDisconnectedError, "the connection was cut before an answer"),
    (ConnectionError, "the connection was cut before an answer"),
    (conversation.NotHttp, "what it answered is not HTTP"),
    (aiohttp.InvalidURL, "the URL cannot be called"),
    (UnicodeError, "the URL cannot be called"),
)


def _wording(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is refused: {_certificate_trouble(error)}"
    for kind, wording in _WORDINGS:
        if isinstance(error, kind):
            return wording
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot be reached: {_system_wording(error.os_error)}"
    return f"the request failed ({type(error).__name__})"


def _system_wording(error: OSError) -> str:
    """The system's words for the number; asyncio's own text repeats the address."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _certificate_trouble(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return getattr(cause, "verify_message", "") or type(cause).__name__
