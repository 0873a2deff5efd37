"""The exceptions of Duepoint, ordered by what the caller should do next.

Expected outcomes (nothing due, lost the lease, target said no, conflict) are return values and
never appear here. Library exceptions stop at their adapter, chained with ``from``. Messages name
the attempt, the object and what to do; they contain no secrets and have a bounded length.

::

    DuepointError
    ├── InvalidSpec          the spec is wrong: tell the user, with the field's path
    │   └── InvalidExpression    one expression text is wrong, with the position inside it
    ├── InvalidSetting       a setting is wrong: exit 2 with one line that names it
    ├── TryLater             another system has trouble: wait ``retry_after_seconds`` and repeat
    │   ├── QueueUnavailable     Redis cannot be reached, is loading, read-only, full or moving
    │   └── ApiUnavailable       the API server cannot be reached, throttles, or answers 5xx
    ├── WorldChanged         the caller's data is out of date: read again, then decide again
    └── Bug                  an invariant of ours does not hold: crash loudly
"""

from __future__ import annotations

from dataclasses import dataclass

#: How much foreign input a message may quote, in characters.
QUOTE_LIMIT = 120


def quoted(value: object) -> str:
    """Return the value in quotes on one line, cut to QUOTE_LIMIT characters."""
    text = (value if isinstance(value, str) else repr(value))[: QUOTE_LIMIT + 1]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else _escaped(each) for each in text)
    if len(text) > QUOTE_LIMIT:
        text = text[: QUOTE_LIMIT - 1] + "…"
    return f'"{text}"'


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class DuepointError(Exception):
    """Root of the tree; never raised itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One thing wrong with one field.

    Attributes:
        reason: the condition reason it leads to, such as ``InvalidSpec``.
        path: the field as users write it, such as ``spec.schedule``.
        message: the wrong value, what is wrong with it, and what to specify instead.
    """

    reason: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidSpec(DuepointError):
    """A spec that only an edit can repair; carries every error found, in field order."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors


class InvalidExpression(DuepointError):
    """A schedule text that is wrong, or that names no instant.

    Attributes:
        field: the part of the expression, such as ``minute``, or None for the whole text.
        position: offset of the offending characters in the text, or None.
        hint: what to write instead; may be empty.
        never_fires: the text is a valid expression, but names no instant.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        position: int | None = None,
        hint: str = "",
        never_fires: bool = False,
    ) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.field = field
        self.position = position
        self.hint = hint
        self.never_fires = never_fires


class InvalidSetting(DuepointError):
    """A setting that stops the process at start: exit code 2, one line."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.reason = message


class TryLater(DuepointError):
    """Nothing is wrong with the request; repeat it after a while.

    Attributes:
        retry_after_seconds: how long the other side asked to wait; None leaves it to the caller.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class QueueUnavailable(TryLater):
    """Redis cannot take the command now."""


class ApiUnavailable(TryLater):
    """The API server cannot take the request now."""


class WorldChanged(DuepointError):
    """The data that the caller read before is out of date."""


class Bug(DuepointError):
    """An invariant of Duepoint itself does not hold."""
