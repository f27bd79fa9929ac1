"""Log lines: one event name each, readable on a terminal, JSON elsewhere.

Lines are rendered where they are logged and written by a thread of their own, so that a stalled
terminal or disk never stops the loop. When the writer cannot keep up, lines are dropped and
counted.
"""

import contextlib
import logging
import logging.handlers
import os
import queue
import sys
import time
from typing import Final, TextIO

import structlog
from structlog.typing import Processor

# Lines waiting to be written; at 200 bytes each this is about 2 MB.
QUEUED_LINES_MAX = 10_000
PERIOD_S: Final = 10.0


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    """Queues rendered lines; drops them when the queue is full, and logs later how many."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1
            return
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            structlog.get_logger(__name__).warning("log_lines_dropped", count=dropped)


class LogLimiter:
    """Limits the log lines of a frequent event to one per `period_s`."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._next = 0.0
        self._count = 0

    def count_event(self) -> int:
        """Count the event.

        Returns the count since the last log line if it is time for one, else 0.
        """
        self._count += 1
        now = time.monotonic()
        if now < self._next:
            return 0
        self._next = now + self._period_s
        count, self._count = self._count, 0
        return count


def start_logging(
    level: str = "info", *, json: bool | None = None, stream: TextIO | None = None
) -> logging.handlers.QueueListener:
    """Send structlog's and the standard library's log lines to `stream` (stderr).

    json: None means JSON unless the stream is a terminal. Stop the returned listener at the end: it
    writes what is queued.
    """
    stream = stream or sys.stderr
    if json is None:
        json = not stream.isatty()
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if json:
        renderer += [
            structlog.processors.EventRenamer("event"),
            # Without the frames' variables, which hold clients' data.
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        plain = structlog.dev.plain_traceback
        has_colours = stream.isatty() and not os.environ.get("NO_COLOR")  # https://no-color.org
        renderer.append(
            structlog.dev.ConsoleRenderer(colors=has_colours, exception_formatter=plain)
        )
    lines: queue.Queue[logging.LogRecord] = queue.Queue(QUEUED_LINES_MAX)
    handler = _DroppingQueueHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=renderer, foreign_pre_chain=before)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    listener = logging.handlers.QueueListener(lines, logging.StreamHandler(stream))
    listener.start()
    return listener


def write_plainly(listener: logging.handlers.QueueListener, line: str) -> None:
    """Write a line as it is, behind those that were logged before. It is lost if the queue is full.

    For people only: where lines are JSON, all have to be.
    """
    with contextlib.suppress(queue.Full):
        listener.queue.put_nowait(logging.makeLogRecord({"msg": line}))
