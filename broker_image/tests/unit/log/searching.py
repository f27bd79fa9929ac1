"""Offsets by time as ListOffsets finds them, without its thread."""

from collections.abc import Callable, Coroutine
from typing import Any

from logfleet.log.partition_log import PartitionLog
from logfleet.log.search import FoundRecord, first_record_since, record_of_largest_timestamp


def by_time(log: PartitionLog, timestamp: int) -> Any:
    """The first record that is at least so young (ms), a FoundRecord or None."""
    return _at_once(first_record_since(log, timestamp, _here))


def youngest(log: PartitionLog) -> Any:
    """The record with the largest timestamp, likewise."""
    return _at_once(record_of_largest_timestamp(log, _here))


async def _here(work: Callable[..., Any], *args: object) -> Any:
    return work(*args)


def _at_once(search: Coroutine[Any, Any, FoundRecord | None]) -> Any:
    """What the search finds, where nothing lets it wait; a loop may or may not be running."""
    try:
        search.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits for something")
