"""JSON of a request into the type that the operation wants.

That it can be read in one way only was looked at before (``application``). Rows of members have a
reader of their own, with messages for each field (``schedules.sets``).
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from duepoint import errors
from duepoint.httpapi.problems import OperationProblem
from duepoint.schedules.sets import strictjson

WantedT = TypeVar("WantedT")

_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)


def check_strictly(text: bytes) -> None:
    """Raise Problem InvalidJson where two readers could read two things; it may take long."""
    if (problem := strictjson.problem(text)) is not None:
        raise OperationProblem("InvalidJson", f"the JSON {problem}")


def decoded(
    text: bytes, decoder: msgspec.json.Decoder[WantedT], shape: str, *, field: str = ""
) -> WantedT:
    """The value of a text; raises Problem InvalidJson, InvalidField, UnknownField.

    Args:
        shape: what to write, such as ``{"ids": ["…"]}``.
        field: which one is wrong where the shape is.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        if (unknown := _UNKNOWN.search(str(error))) is not None:
            message = f"{errors.quoted(unknown[1])} is no field here; write {shape}"
            raise OperationProblem("UnknownField", message, field=unknown[1][:60]) from None
        message = f"write {shape}: {error}"[:200]
        raise OperationProblem("InvalidField", message, field=field) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise OperationProblem("InvalidJson", f"is not JSON: {error}"[:200]) from None
