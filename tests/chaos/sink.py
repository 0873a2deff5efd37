"""The receiver of webhooks: it notes each request, and may fail on demand."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.recorder import Recorder
from tests.support import receiver


class Mood(enum.Enum):
    """How it answers."""

    WELL = enum.auto()
    REFUSES = enum.auto()
    HANGS = enum.auto()
    #: It has taken the request, and its answer does not arrive.
    CUTS = enum.auto()


class Sink:
    """Attributes:
    spoilt: requests that it did not answer as it should have.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._mood = Mood.WELL
        self.spoilt = 0

    @asynccontextmanager
    async def being(self, mood: Mood) -> AsyncIterator[None]:
        """In this mood within; requests that hang then stay so until they are given up."""
        self._mood = mood
        try:
            yield
        finally:
            self._mood = Mood.WELL

    async def answer(self, request: receiver.Request, writer: asyncio.StreamWriter) -> None:
        mood = self._mood
        self.spoilt += mood is not Mood.WELL
        self._recorder.see_request(request, accepted=mood in {Mood.WELL, Mood.CUTS})
        match mood:
            case Mood.WELL:
                await receiver.status(204)(request, writer)
            case Mood.REFUSES:
                await receiver.status(503)(request, writer)
            case Mood.HANGS:
                await receiver.hang(request, writer)
            case Mood.CUTS:
                writer.transport.abort()
