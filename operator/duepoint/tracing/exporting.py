"""Ended spans wait here for a thread that sends them: bounded, counted, never in the way.

The event loop only appends to a queue. A collector that is slow or away costs spans, which are
counted, and nothing else: the queue takes no more than ``MOST_SPANS``, and a batch that could not
be sent is not kept.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence

from duepoint import telemetry
from duepoint.tracing import spans

#: Some 5 MB.
MOST_SPANS = 8192
_BATCH = 512
#: Fewer spans than a batch are sent after this.
_SECONDS = 1.0
#: How long the last spans may take at the end of the process.
_CLOSING_SECONDS = 3.0

#: Sends a batch; False where it was not accepted.
Export = Callable[[Sequence[spans.Span]], bool]


class SpanQueue:
    """Spans on their way to a collector; ``close`` it at the end.

    Args:
        export: is called in a thread of its own, one batch at a time; it limits its own time.
        stop: ends an ``export`` that is under way.
    """

    def __init__(
        self,
        export: Export,
        stop: Callable[[], None] = lambda: None,
        *,
        most: int = MOST_SPANS,
        closing_seconds: float = _CLOSING_SECONDS,
    ) -> None:
        self._export = export
        self._stop = stop
        self._most = most
        self._closing_seconds = closing_seconds
        self._waiting: collections.deque[spans.Span] = collections.deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put_nowait(self, span: spans.Span) -> None:
        """Hand over a span; where the queue is full it is dropped and counted."""
        if self._is_closing or len(self._waiting) >= self._most:
            telemetry.spans_of("dropped").inc()
            return
        self._waiting.append(span)
        if len(self._waiting) >= _BATCH:
            self._wake.set()

    def close(self) -> None:
        """Send what waits, for a few seconds at most; blocks meanwhile."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(self._closing_seconds)
        self._stop()
        self._thread.join(self._closing_seconds)
        telemetry.spans_of("dropped").inc(len(self._waiting))

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(_SECONDS)
            self._wake.clear()
            self._send_waiting()
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting:
            count = min(_BATCH, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            try:
                is_sent = self._export(batch)
            except Exception:  # noqa: BLE001 - a bug in the exporter must not end the exports
                telemetry.logger.exception("spans not exported")
                is_sent = False
            telemetry.spans_of("exported" if is_sent else "failed").inc(count)
