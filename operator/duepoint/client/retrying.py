"""Whether a request is sent again, and when. The caller waits.

Every request of this client can be repeated: a reading changes nothing, a PUT, PATCH or DELETE
without a condition and without a ``delay`` leads to the same state again, and every other change
carries an ``Idempotency-Key``, under which the API answers a repetition as it answered the first.
So what decides is the kind of failure alone. The wait doubles with each attempt and is drawn evenly
from its upper half, so that clients that failed together do not come back together;
``Retry-After`` of the API is the least that is waited.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from duepoint.client import problems, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how long a request is repeated.

    Attributes:
        attempts: in all, the first included; 1 = never again.
        first_seconds: the longest wait after the first attempt; it doubles from there.
        longest_seconds: the longest wait between two attempts, unless the API asks for more.
        total_seconds: no attempt begins later than this after the first one began.
    """

    attempts: int = 6
    first_seconds: float = 0.2
    longest_seconds: float = 10.0
    total_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts}; write 1 or more")
        if min(self.first_seconds, self.longest_seconds, self.total_seconds) < 0:
            raise ValueError("seconds of Retries are 0 or more")

    def wait_seconds(
        self,
        error: problems.ClientError,
        *,
        made: int,
        elapsed_seconds: float,
        random_share: Callable[[], float] = random.random,
    ) -> float | None:
        """How long to wait before the next attempt; None = there is none.

        Args:
            made: attempts made so far, 1 or more.
            elapsed_seconds: since the first one began.
            random_share: from 0 to 1.
        """
        if made >= self.attempts or not is_passing(error):
            return None
        longest = min(self.longest_seconds, self.first_seconds * 2.0 ** min(made - 1, 60))
        wait = longest / 2 * (1 + random_share())
        asked = getattr(error, "retry_after_seconds", None)
        if asked is not None:
            wait = max(wait, asked)
        return wait if elapsed_seconds + wait <= self.total_seconds else None


#: A request is sent once, whatever comes of it.
NEVER = Retries(attempts=1)


def is_passing(error: problems.ClientError) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, (problems.ServiceBusy, problems.ServiceUnreachable))


class Attempts:
    """How often one request was made, and since when."""

    def __init__(
        self,
        retries: Retries,
        token: tokens.TokenSource | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retries = retries
        self._token = token
        self._is_renewed = False
        self._monotonic = monotonic
        self.begin_anew()

    def begin_anew(self) -> None:
        """Count from here on: the request that follows is another one."""
        self._made, self._began = 0, self._monotonic()

    def after(self, error: problems.ClientError) -> float | None:
        """Seconds to wait for the next attempt; None = the error stays."""
        self._made += 1
        if self._has_renewed_token(error):
            return 0.0
        return self._retries.wait_seconds(
            error, made=self._made, elapsed_seconds=self._monotonic() - self._began
        )

    def _has_renewed_token(self, error: problems.ClientError) -> bool:
        """A 401 is answered once with a token that was replaced meanwhile."""
        if self._token is None or self._is_renewed:
            return False
        if not isinstance(error, problems.AccessDenied) or error.status != 401:
            return False
        self._is_renewed = True
        return self._token.renew()
