"""What an installation allows of streams in Duepoint's own Redis.

The operator refuses a Schedule that asks for more, and the worker applies the same rule to each
point: a definition may be older than the rule. Streams in another Redis are not limited. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import errors
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason

#: Entries that a stream keeps if its Schedule does not say, and the most of any. Bytes bound a
#: namespace's streams as well, and are what an installation sets.
DEFAULT_LENGTH = 10_000
MAX_LENGTH = 1_000_000

OFF = (
    "this installation has no streams in Duepoint's own Redis; name another Redis in"
    " connectionSecretRef, or write kafka or webhook instead"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStreams:
    """The rule of one installation.

    Attributes:
        enabled: False = there are none.
    """

    enabled: bool = True

    def refusal(self, target: actions.Target) -> errors.FieldError | None:
        """Why a Schedule with this target is refused; None where it is not."""
        stream = own(target)
        if stream is None:
            return None
        if not self.enabled:
            return errors.FieldError(reason=Reason.OWN_STREAMS_OFF, path="spec.stream", message=OFF)
        if stream.max_length is None or stream.max_length <= MAX_LENGTH:
            return None
        return errors.FieldError(
            reason=Reason.OUT_OF_RANGE,
            path="spec.stream.maxLength",
            message=f"{stream.max_length} is more than is kept of a stream in"
            f" Duepoint's own Redis; write {MAX_LENGTH} or less, or leave it out for"
            f" {DEFAULT_LENGTH}",
        )


def length(asked: int | None) -> int:
    """Return the entries that a stream keeps, about."""
    return min(DEFAULT_LENGTH if asked is None else asked, MAX_LENGTH)


#: The rule without settings.
USUAL = OwnStreams()


def own(target: actions.Target) -> actions.StreamAction | None:
    """The target, where it is a stream in Duepoint's own Redis."""
    is_own = isinstance(target, actions.StreamAction) and target.connection is None
    return target if is_own and isinstance(target, actions.StreamAction) else None
