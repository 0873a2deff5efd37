"""What an installation allows of streams in Duepoint's own Redis.

The operator refuses a Schedule that asks for more, and the worker applies the same rule to each
point: a definition may be older than the rule. Streams in another Redis are not limited. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import errors
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason

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
        default_length: entries that a stream keeps where its Schedule does not say.
        max_length: most entries of any.
    """

    enabled: bool = True
    default_length: int = DEFAULT_LENGTH
    max_length: int = MAX_LENGTH

    def length(self, asked: int | None) -> int:
        """Entries that a stream keeps, about."""
        return min(self.default_length if asked is None else asked, self.max_length)

    def refusal(self, target: actions.Target, *, is_accepted: bool) -> errors.FieldError | None:
        """Why a Schedule with this target is refused; None where it is not.

        Args:
            is_accepted: this generation was accepted before: of a length that has become too large
                as much is kept as may be.
        """
        stream = own(target)
        if stream is None:
            return None
        if not self.enabled:
            return errors.FieldError(reason=Reason.OWN_STREAMS_OFF, path="spec.stream", message=OFF)
        if stream.max_length is None or stream.max_length <= self.max_length or is_accepted:
            return None
        return errors.FieldError(
            reason=Reason.OUT_OF_RANGE,
            path="spec.stream.maxLength",
            message=f"{stream.max_length} is more than this installation keeps of a stream in"
            f" Duepoint's own Redis; write {self.max_length} or less, or leave it out for"
            f" {self.length(None)}",
        )


#: The rule without settings.
USUAL = OwnStreams()


def own(target: actions.Target) -> actions.StreamAction | None:
    """The target, where it is a stream in Duepoint's own Redis."""
    is_own = isinstance(target, actions.StreamAction) and target.connection is None
    return target if is_own and isinstance(target, actions.StreamAction) else None
