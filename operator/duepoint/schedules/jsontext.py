"""Checks JSON text for nesting that is too deep, and for forms that readers interpret differently.

The API server stores objects of up to 10,000 levels. Decoders fail with RecursionError somewhere
between one and ten thousand levels, depending on the version of Python, and lose everything else
in the same text: one such object on a page would hide all the others. So our own limit is far
below theirs. ``clipped`` makes such text readable; ``too_deep`` names the field of a spec.

RFC 8259 does not define what equal keys, numbers beyond a double, unpaired surrogates and endless
nesting mean. Two readers of one payload must not read different things, so ``problem`` refuses
all of them. A few searches in C clear nearly every text; only the others are decoded, by the
standard library. Linear in the bytes. Pure.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

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
        mark = token[0]
        if mark in (b"[", b"{"):
            level += 1
            if level > DEEPEST:
                return key or "."
        elif mark in (b"]", b"}"):
            level -= 1
        elif level == 1 and _COLON.match(text, token.end()):
            key = mark[1:-1].decode(errors="replace")
    return ""


# -- forms that two readers would interpret differently --------------------------------------------

# Each string, with the colon behind it if it is a key. A string without an end matches to the end
# of the text, as in _TOKEN.
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*+)(?:"(\s*+:)?)?', re.DOTALL)
_NEEDS_DECODING = re.compile(rb"\\u[dD][89a-fA-F]|\d[eE][+-]?\d\d\d|\d{300}")
_LONG_NUMBER = re.compile(rb"\d{300}")

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def problem(text: bytes) -> str | None:
    """Return what is wrong with a text, or None; the decoder checks whether it is JSON at all.

    The caller bounds the text: 100 KiB take a few milliseconds.
    """
    where = too_deep(text)
    if not where and not _LONG_NUMBER.search(text) and _is_canonical(text):
        return None
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            return f"is not UTF-8 at byte {error.start}"
        if text.startswith(b"\xef\xbb\xbf"):
            return "begins with a byte order mark; leave it out"
    if where:
        return f"is nested deeper than {DEEPEST} levels under {where!r}; write it flatter"
    keys = [string for string, colon in _STRING.findall(text) if colon]
    if (
        len(set(keys)) == len(keys)
        and b"\\" not in b"".join(keys)
        and not _NEEDS_DECODING.search(text)
    ):
        return None
    return _problem_by_decoding(text)


def _is_canonical(text: bytes) -> bool:
    """Whether decoding and encoding gives the same text back: then no key comes twice.

    This takes a tenth of the time of a search for keys. Most clients send compact JSON, which
    passes this test.
    """
    try:
        return _encoder.encode(_decoder.decode(text)) == text
    except (ValueError, RecursionError):
        return False


class _Refused(ValueError):
    pass


def _problem_by_decoding(text: bytes) -> str | None:
    try:
        value = json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_int=_finite,
            parse_constant=_no_number,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except _Refused as error:
        return str(error)
    except UnicodeEncodeError:
        return "has half of a surrogate pair; write the whole character"
    except (ValueError, RecursionError):
        return None  # not JSON: the decoder reports where
    return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"has the key {double[:60]!r} twice; write it once")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(
            f"has the number {text[:20]}, which no double can hold; write it as a string"
        )
    return number


def _no_number(text: str) -> NoReturn:
    raise _Refused(f"has {text}, which is no JSON; write null or a string")
