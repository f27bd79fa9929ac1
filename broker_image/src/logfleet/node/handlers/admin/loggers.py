"""Levels of this broker's loggers: the broker itself describes and changes them (KIP-412).

The controller has no part in it.
"""

import logging
from collections import Counter
from collections.abc import Iterator

import msgspec

from logfleet.config.description import ConfigSource, DescribedConfig
from logfleet.config.keys import ConfigType
from logfleet.controller.changes.config_changes import ConfigChange, ConfigOperation
from logfleet.controller.changes.logger_levels import (
    LEVELS,
    ROOT,
    level_name,
    refuse_logger_changes,
)
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from logfleet.wire.refusal import Refusal

_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
_Row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse

OURS = "logfleet"


def loggers() -> dict[str, logging.Logger]:
    """The root logger and all loggers of this package that exist."""
    named = logging.root.manager.loggerDict
    ours = {
        name: logger
        for name, logger in sorted(named.items())
        if name.partition(".")[0] == OURS and isinstance(logger, logging.Logger)
    }
    return {ROOT: logging.root, **ours}


def describe_loggers() -> Iterator[DescribedConfig]:
    for name, logger in loggers().items():
        yield DescribedConfig(
            name,
            level_name(logger.getEffectiveLevel()),
            ConfigSource.DYNAMIC_BROKER_LOGGER,
            is_read_only=False,
            is_sensitive=False,
            synonyms=(),
            type=ConfigType.UNKNOWN,
            documentation="",
        )


def alter_loggers(
    rooms: Rooms, request: IncrementalAlterConfigsRequest, kind: int
) -> tuple[list[_Row], IncrementalAlterConfigsRequest]:
    """Do the part of the request that is about loggers: resources of type `kind`.

    Returns their rows, and the request without them.
    """
    times = Counter(each.resource_name for each in request.resources if each.resource_type == kind)
    rows = []
    for resource in request.resources:
        if resource.resource_type != kind:
            continue
        refusal: Refusal | None
        if times[resource.resource_name] > 1:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            refusal = _alter(rooms, resource, validate_only=request.validate_only)
        rows.append(
            _Row(
                error_code=refusal.error if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
                resource_type=kind,
                resource_name=resource.resource_name,
            )
        )
    others = [each for each in request.resources if each.resource_type != kind]
    return rows, msgspec.structs.replace(request, resources=others)


def _alter(rooms: Rooms, resource: _Resource, *, validate_only: bool) -> Refusal | None:
    name = resource.resource_name
    if not name.isdecimal():
        message = f"Node id must be an integer, but it is: {name}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if int(name) != rooms.node_id:
        message = f"Unexpected node id. Expected {rooms.node_id}, but received {name}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    existing = loggers()
    changes = [
        ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs
    ]
    refusal = refuse_logger_changes(changes, existing)
    if refusal is None and not validate_only:
        for change in changes:
            level = (
                LEVELS[change.value or ""]
                if change.operation == ConfigOperation.SET
                else logging.NOTSET
            )
            existing[change.name].setLevel(level)
    return refusal
