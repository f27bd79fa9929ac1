"""Levels of a broker's loggers, as Kafka's tools read and set them.

They last as long as the process.

KIP-412; Kafka: LoggingController.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Final

from logfleet.controller.changes.config_changes import (
    ConfigChange,
    ConfigOperation,
    refuse_malformed_changes,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": 5,
    "DEBUG": 10,
    "INFO": 20,
    "WARN": 30,
    "ERROR": 40,
    "FATAL": 50,
}
"""Kafka's names with the numbers of Python's levels."""


def level_name(number: int) -> str:
    """The lowest of Kafka's levels that is at least Python's level `number`."""
    return next((name for name, least in LEVELS.items() if number <= least), "FATAL")


def refuse_logger_changes(
    changes: Sequence[ConfigChange], loggers: Container[str]
) -> Refusal | None:
    """Why these levels cannot be set; None if they can. loggers: the names that exist."""
    refusal = refuse_malformed_changes(changes)
    for change in changes:
        refusal = refusal or _refuse(change, loggers)
    return refusal


def _refuse(change: ConfigChange, loggers: Container[str]) -> Refusal | None:
    if change.operation not in {ConfigOperation.SET, ConfigOperation.DELETE}:
        is_known = change.operation in set(ConfigOperation)
        what = (
            f"{ConfigOperation(change.operation).name} operation"
            if is_known
            else f"Unknown operation type {change.operation}"
        )
        message = f"{what} is not allowed for the BROKER_LOGGER resource"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if change.name not in loggers:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == ConfigOperation.DELETE and change.name == ROOT:
        message = "Removing the log level of the root logger is not allowed"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if change.operation == ConfigOperation.SET and change.value not in LEVELS:
        message = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a "
            "supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None
