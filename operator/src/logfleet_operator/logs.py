"""One log line per event, as JSON or for a terminal; kopf and other libraries do the same."""

import functools
import logging
import sys
from typing import Any

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def configure(level: str, *, as_json: bool) -> None:
    """Send every log line of this process to stdout in one form. level: debug ... error."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    final: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    final += [structlog.processors.JSONRenderer()] if as_json else [structlog.dev.ConsoleRenderer()]
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=final)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # kopf logs every event that it passes on.
    logging.getLogger("kopf").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    structlog.configure(
        processors=[*shared[:-1], structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


@functools.lru_cache
def log_ignored_fields(kind: str, fields: tuple[str, ...]) -> None:
    """Log that resources of this kind have unknown fields; once per set of fields."""
    if fields:
        log.warning("fields_ignored", kind=kind, fields=fields)
