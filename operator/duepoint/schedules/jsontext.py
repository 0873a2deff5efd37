"""Checks JSON text for nesting that is too deep, and for numbers that no reader can hold.

The API server stores objects of up to 10,000 levels. Decoders fail with RecursionError somewhere
between one and ten thousand levels, depending on the version of Python, and lose everything else
in the same text: one such object on a page would hide all the others. So our own limit is far
below theirs. ``clipped`` makes such text readable; ``too_deep`` names the field of a spec.

Payloads are handed on byte by byte and decoded elsewhere, so ``problem`` refuses what would fail
there, or would be read differently. Linear in the bytes. Pure.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

#: Levels that a spec may have; deeper nesting is refused. The command line has the same limit.
DEEPEST = 100
#: Levels kept of a text that is too deep to decode: enough for its spec to be refused.
LEFT = 120

# A string without an end matches to the end of the text. Without that, the search would start again
# at each quote in it: a text of 64 KB took a minute.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"\s*:")


def clipped(text: bytes, most: int = LEFT) -> bytes:
    """Return the text with null in place of values nested deeper than ``most`` levels.

    If the text ends inside such a value, the result ends there as well.
    """
    if sum(map(text.count, (b"{", b"["))) <= most:
        return text
    pieces: list[bytes] = []
    level = kept_to = 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"[", b"{"):
            if level == most:
                pieces.append(text[kept_to : token.start()])
            level += 1
        elif token[0] in (b"]", b"}"):
            level -= 1
            if level == most:
                pieces.append(b"null")
                kept_to = token.end()
    if level <= most:
        pieces.append(text[kept_to:])
    return b"".join(pieces)


def too_deep(text: bytes) -> str:
    """Return the first key of the object whose value is nested too deeply; "" if there is none."""
    if sum(map(text.count, (b"{", b"["))) <= DEEPEST:
        return ""  # nearly every spec ends here
    level, key = 0, ""
    for token in _TOKEN.finditer(text):
        symbol = token[0]
        if symbol in (b"[", b"{"):
            level += 1
            if level > DEEPEST:
                return key or "."
        elif symbol in (b"]", b"}"):
            level -= 1
        elif level == 1 and _COLON.match(text, token.end()):
            key = symbol[1:-1].decode(errors="replace")
    return ""


_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


_LONG_NUMBER = re.compile(rb"\d{300}")
_TOO_LARGE = "has a number that no double can hold; write it as a string"


class _Refused(ValueError):
    pass


def problem(text: bytes) -> str | None:
    """Return what is wrong with a JSON text, or None; the decoder of fields reports other errors.

    RFC 8259 leaves open which of equal keys counts, so two readers would read different things.
    """
    if where := too_deep(text):
        return f"is nested deeper than {DEEPEST} levels under {where!r}; write it flatter"
    try:
        if _encoder.encode(_decoder.decode(text)) == text and not _LONG_NUMBER.search(text):
            return None  # compact, as most clients send it, so no key was lost
        json.loads(text, object_pairs_hook=_without_equal_keys, parse_int=_double)
    except msgspec.ValidationError:
        return _TOO_LARGE
    except UnicodeDecodeError as error:
        return f"is not UTF-8 ({error.reason})"
    except _Refused as why:
        return str(why)
    except ValueError:  # no JSON
        pass
    return None


def _without_equal_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Refused(f"has the key {key!r} twice; write it once")
        seen.add(key)


def _double(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise _Refused(_TOO_LARGE)
    return number
