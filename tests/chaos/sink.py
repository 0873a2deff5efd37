"""The receiver of webhooks, which records each request and can fail on demand."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.recorder import Recorder
from tests.support import receiver


class Mood(enum.Enum):
    """The ways in which it can answer."""

    WELL = enum.auto()
    REFUSES = enum.auto()
    HANGS = enum.auto()
    #: It accepts the request, but its answer does not arrive.
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
        """Answer in this way within; requests that hang do so until their sender gives up."""
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
