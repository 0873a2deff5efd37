"""How deep JSON text is nested, found out without recursion.

The API server keeps objects of up to 10,000 levels. Decoders give up between one thousand and ten
thousand, depending on the version of Python, with RecursionError and all else that stands in the
same text: one such object on a page would hide all the others. So the limit is ours, far below
theirs. In: JSON text, of the API server or of a file. ``clipped`` makes it readable, ``too_deep``
says which field of a spec is to blame. Linear in the bytes; nothing is decoded. Pure.
"""

from __future__ import annotations

import re

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
