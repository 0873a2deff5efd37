"""Cuts a stream of chunks into lines of any length.

A watch event is one line and may be 1.5 MB, which the line reader of the HTTP library refuses
beyond twice its buffer. Work is linear in the bytes, however small the chunks. Pure.
"""

from __future__ import annotations


class Splitter:
    """Feed it chunks, get back the lines that are complete; blank ones are dropped."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, in order, without their newline."""
        head, newline, rest = chunk.partition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        complete = [b"".join([*self._pieces, head]), *rest.split(b"\n")]
        self._pieces = [complete.pop()] if rest else []
        return [line for line in complete if line.strip()]
