"""``@never``: no slot; a Schedule that runs only when it is triggered."""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "@never"


@dataclass(frozen=True, slots=True)
class Never:
    """No slot at all."""

    def next_after(self, instant_us: int) -> None:  # noqa: ARG002 - the protocol's
        return None

    def previous_before(self, instant_us: int) -> None:  # noqa: ARG002 - the protocol's
        return None

    def count_between(self, after_us: int, through_us: int) -> int:  # noqa: ARG002 - the protocol's
        return 0

    def describe(self) -> str:
        return "never by itself, only when it is triggered"
