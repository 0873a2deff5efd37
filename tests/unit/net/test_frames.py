"""What passes of a server's frames, however the network cuts them."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.net import dialling


class Transport(asyncio.Transport):
    """Notes whether it was aborted."""

    is_aborted = False

    def abort(self):
        self.is_aborted = True


class Inner(asyncio.Protocol):
    """Notes what it is called with."""

    def __init__(self):
        self.calls = []
        self.received = b""

    def connection_made(self, transport):
        self.calls.append(transport)

    def data_received(self, data):
        self.received += data

    def eof_received(self):
        self.calls.append("eof")
        return True

    def pause_writing(self):
        self.calls.append("pause")

    def resume_writing(self):
        self.calls.append("resume")

    def connection_lost(self, exc):
        self.calls.append(exc)


def connected():
    inner, transport = Inner(), Transport()
    bounded = dialling.BoundedFrames(inner)
    bounded.connection_made(transport)
    return bounded, inner, transport


def frame(size):
    return size.to_bytes(4, "big") + bytes(size)


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 1000, 1 << 20])
def test_ordinary_frames_pass_unchanged(piece):
    stream = b"".join(map(frame, (0, 1, 2, 3, 700, 0, 5000, 4)))
    bounded, inner, transport = connected()
    for at in range(0, len(stream), piece):
        bounded.data_received(stream[at : at + piece])
    assert inner.received == stream
    assert not transport.is_aborted


def test_the_longest_frame_passes_and_a_longer_one_is_cut_off():
    bounded, inner, transport = connected()
    bounded.data_received(frame(dialling.MOST_BYTES))
    assert len(inner.received) == 4 + dialling.MOST_BYTES
    bounded.data_received((dialling.MOST_BYTES + 1).to_bytes(4, "big")[:3])
    assert not transport.is_aborted
    bounded.data_received((dialling.MOST_BYTES + 1).to_bytes(4, "big")[3:])
    assert transport.is_aborted
    bounded.data_received(bytes(100))
    assert len(inner.received) == 4 + dialling.MOST_BYTES + 3
    bounded.connection_lost(None)
    assert isinstance(inner.calls[-1], ConnectionAbortedError)


def test_a_negative_length_is_cut_off_as_well():
    bounded, inner, transport = connected()
    bounded.data_received(b"\xff\xff\xff\xff")
    assert (transport.is_aborted, inner.received) == (True, b"")
