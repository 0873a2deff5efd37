"""How deep JSON text is nested, and what is wrong with text that a lenient decoder takes.

The API server keeps objects of up to 10,000 levels. Decoders give up between one thousand and ten
thousand, depending on the version of Python, with RecursionError and all else that stands in the
same text: one such object on a page would hide all the others. So the limit is ours, far below
theirs. ``clipped`` makes such text readable, ``too_deep`` says which field of a spec is to blame.

RFC 8259 leaves to the reader what equal keys, numbers beyond a double, unpaired surrogates and
endless nesting mean; two readers of one payload must not see two things, so ``problem`` refuses
all of them. Nearly every text is passed by a few searches in C; where they find something, the
standard library decodes it. Linear in the bytes. Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

#: Levels of a spec; what is nested deeper is refused. The command line has the same limit.
DEEPEST = 100
#: Levels that are left of a text that could not be decoded: enough for a spec to be refused.
LEFT = 120

# A string without an end goes to the end of the text: begun again at each quote within it, a text
# of 64 KB took a minute.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_COLON = re.compile(rb"\s*:")


def clipped(text: bytes, most: int = LEFT) -> bytes:
    """The same text with null in place of what is nested deeper than ``most`` levels.

    A text that ends within such a depth ends there.
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
    """The first key of the object under which it is nested too deeply; "" where it is not."""
    if sum(map(text.count, (b"{", b"["))) <= DEEPEST:
        return ""  # nearly every spec there is
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


# -- what two readers would read differently -------------------------------------------------------

# Each string, with the colon behind it where it is a key. A string without an end goes to the end
# of the text: begun again at each quote within it, 64 KB took a minute.
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*+)(?:"(\s*+:)?)?', re.DOTALL)
_NEEDS_DECODING = re.compile(rb"\\u[dD][89a-fA-F]|\d[eE][+-]?\d\d\d|\d{300}")
_LONG_NUMBER = re.compile(rb"\d{300}")
#: JSON of so many bytes is neither nested too deeply, nor is a number of it so long.
_HARMLESS_BYTES = 2 * DEEPEST

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def problem(text: bytes) -> str | None:
    """What is wrong with a text, or None; whether it is JSON at all the decoder says.

    The text is bounded by the caller: some 100 KiB take a few milliseconds.
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


def plain_lines(lines: Sequence[bytes]) -> bytes | None:
    """All lines as one text, each with a newline behind it; None where a line may have a problem.

    Lines of an NDJSON text in which ``problem`` finds nothing to look at closely take a third of
    the time when they are looked at together.
    """
    for line in lines:
        if len(line) > _HARMLESS_BYTES and (too_deep(line) or _LONG_NUMBER.search(line)):
            return None
    text = b"\n".join((*lines, b""))
    try:
        return text if _encoder.encode_lines(_decoder.decode_lines(text)) == text else None
    except (ValueError, RecursionError):
        return None


def _is_canonical(text: bytes) -> bool:
    """Whether a decoder and an encoder give the same text back, which no equal keys survive.

    This takes a tenth of the time of a search for keys; compact JSON, which most clients send,
    goes this way.
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
            parse_int=_within,
            parse_constant=_no_number,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except _Refused as error:
        return str(error)
    except UnicodeEncodeError:
        return "has half of a surrogate pair; write the whole character"
    except (ValueError, RecursionError):
        return None  # not JSON: the decoder says where
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


def _within(text: str) -> float:
    return _finite(text)


def _no_number(text: str) -> NoReturn:
    raise _Refused(f"has {text}, which is no JSON; write null or a string")
