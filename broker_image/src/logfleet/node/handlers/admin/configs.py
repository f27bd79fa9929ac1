"""DescribeConfigs, ListConfigResources, IncrementalAlterConfigs and AlterConfigs.

This broker answers the first two; the controller does the others. Checks follow Kafka's
ConfigHelper and ConfigAdminManager. Levels of loggers belong to the broker that gets the request
(`loggers`). Client metrics have no configurations in this version: they are refused as a type that
Kafka does not have.
"""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from logfleet.config.description import (
    DescribedConfig,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
    described_build,
)
from logfleet.config.dynamic import in_force, layers_of
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.config_changes import (
    ConfigChange,
    ConfigOperation,
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
)
from logfleet.controller.changes.topics import name_problem
from logfleet.controller.running.access import ControllerAccess, ControllerWork
from logfleet.controller.terms.operations import Operation, TermDecision
from logfleet.metadata.image import ClusterImage
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.admin.loggers import alter_loggers, describe_loggers
from logfleet.node.handlers.rooms import Rooms, origin_of
from logfleet.wire.encoded_rows import EncodedRow, EncodedRows
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from logfleet.wire.refusal import Refusal
from logfleet.wire.request_memory import REQUEST_MEMORY_BYTES_MAX

RESOURCE_TYPES_SINCE: Final = 1
# Kafka: ConfigResource.Type
TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
SERVED: Final = {TOPIC, BROKER, GROUP}

CONFIGS_AT_ONCE: Final = 100
"""Configs described in one step of the loop: about 2 ms with their synonyms."""
TOO_LONG: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "The answer would be too long: describe fewer resources at once."
)

# As Java's Integer.parseInt: no blanks.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")

_Described = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
_Request = IncrementalAlterConfigsRequest | AlterConfigsRequest
_Response = IncrementalAlterConfigsResponse | AlterConfigsResponse
_Resource = (
    IncrementalAlterConfigsRequest.AlterConfigsResource | AlterConfigsRequest.AlterConfigsResource
)


# --- DescribeConfigs


async def describe_configs(
    rooms: Rooms, request: DescribeConfigsRequest, context: RequestContext
) -> EncodedRows:
    """Describe the resources in the request's order, all by one image.

    A resource that is named twice is returned twice, as in Kafka, but described once. The answer is
    bounded by the memory of a request, REQUEST_MEMORY_BYTES_MAX: further resources are refused.
    """
    describing = _Describing(rooms, request)
    rows = EncodedRows(DescribeConfigsResponse(), context.api_version)
    described: dict[tuple[int, str, frozenset[str]], EncodedRow] = {}
    for wanted in request.resources:
        kind, name = wanted.resource_type, wanted.resource_name
        resource = kind, name, frozenset(wanted.configuration_keys or ())
        await describing.step()
        row = described.get(resource)
        if rows.size > REQUEST_MEMORY_BYTES_MAX:
            row = rows.encode(_refused(kind, name, TOO_LONG))
        elif row is None:
            row = described[resource] = rows.encode(await describing.describe(*resource))
        rows.add(row)
    return rows


class _Describing:
    """The work of one request, in steps of CONFIGS_AT_ONCE configs or refused resources."""

    def __init__(self, rooms: Rooms, request: DescribeConfigsRequest) -> None:
        self._node_id = rooms.node_id
        self._image = rooms.metadata.image
        self._layers = in_force(
            layers_of(rooms.config.static, rooms.metadata.image, rooms.node_id)
        )[0]
        self._request = request
        self._done = 0

    async def step(self) -> None:
        """Let the loop serve others now and then."""
        self._done += 1
        if self._done % CONFIGS_AT_ONCE == 0:
            await asyncio.sleep(0)

    async def describe(self, kind: int, name: str, keys: frozenset[str]) -> _Described:
        """Describe a resource. keys: the configs to describe; all if it is empty."""
        found = self._find(kind, name)
        if isinstance(found, Refusal):
            return _refused(kind, name, found)
        result = _Described(resource_type=kind, resource_name=name)
        for config in found:
            await self.step()
            if not keys or config.name in keys:
                result.configs.append(_entry(config, self._request))
        return result

    def _find(self, kind: int, name: str) -> Iterable[DescribedConfig] | Refusal:
        if kind == TOPIC:
            problem = name_problem(name)
            if problem is not None:
                return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            topic = self._image.topic(name)
            if topic is None:
                return Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
                )
            return describe_topic(topic.configs, self._layers)
        if kind == BROKER:
            if not name:
                return describe_cluster(self._image.configs_of_broker(None).values)
            refusal = _refuse_broker_name(name, self._node_id)
            if refusal is not None:
                return refusal
            return itertools.chain(describe_broker(self._layers), [described_build()])
        if kind == BROKER_LOGGER:
            if not name:
                return Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            return _refuse_broker_name(name, self._node_id, "") or describe_loggers()
        if kind == GROUP:
            if not name:
                return Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(self._image.configs_of_group(name).values, self._layers)
        return _unsupported(kind)


def _refused(kind: int, name: str, refusal: Refusal) -> _Described:
    return _Described(
        resource_type=kind,
        resource_name=name,
        error_code=refusal.error,
        error_message=refusal.message,
    )


def _refuse_broker_name(
    name: str, node_id: int, or_else: str = " or empty string"
) -> Refusal | None:
    """A broker describes only its own configuration: others do not have its server.properties."""
    if not _INTEGER.fullmatch(name):
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    if int(name) != node_id:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}{or_else}, but received {name}",
        )
    return None


def _unsupported(resource_type: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"Unsupported resource type {resource_type}: topics ({TOPIC}), brokers ({BROKER}), their "
        f"loggers ({BROKER_LOGGER}) and groups ({GROUP}) have configurations in this version.",
    )


def _entry(config: DescribedConfig, request: DescribeConfigsRequest) -> _Entry:
    synonyms = config.synonyms if request.include_synonyms else ()
    return _Entry(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in synonyms
        ],
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )


# --- ListConfigResources


def list_config_resources(
    rooms: Rooms, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """Topics, brokers, and groups with configs; all kinds if the request names none (KIP-1142).

    Version 0 lists client metrics, which have no configuration in this version.
    """
    kinds = set(request.resource_types)
    if not kinds <= {*SERVED, BROKER_LOGGER, CLIENT_METRICS}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if context.api_version >= RESOURCE_TYPES_SINCE and not kinds:
        kinds = {*SERVED, BROKER_LOGGER}
    names = []
    if GROUP in kinds:
        names += [(GROUP, name) for name in sorted(rooms.metadata.image.group_configs)]
    for kind in (BROKER_LOGGER, BROKER):
        if kind in kinds:
            names += [(kind, str(broker_id)) for broker_id in sorted(rooms.metadata.image.brokers)]
    if TOPIC in kinds:
        names += [
            (TOPIC, name) for name in sorted(topic.name for topic in rooms.metadata.image.topics())
        ]
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in names
        ]
    )


# --- IncrementalAlterConfigs (KIP-339) and AlterConfigs, which resets what it does not name


class _Alteration(msgspec.Struct, frozen=True):
    """The differences between the two APIs that alter configurations.

    replaces: keys that a request does not name return to their defaults.
    """

    response: Callable[..., _Response]
    row: Callable[..., Any]
    replaces: bool

    async def serve(self, access: ControllerAccess, request: _Request, _version: int) -> _Response:
        times = Counter((each.resource_type, each.resource_name) for each in request.resources)
        rows = []
        for resource in request.resources:
            if times[resource.resource_type, resource.resource_name] > 1:
                answer: Refusal | bool = Refusal(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            else:
                operation = self._operation(resource, validate_only=request.validate_only)
                if not isinstance(operation, Refusal):
                    answer = await access.controller.submit(operation)
                else:
                    answer = operation
            rows.append(self._altered(resource, answer if isinstance(answer, Refusal) else None))
        return self.response(responses=rows)

    def _operation(self, resource: _Resource, *, validate_only: bool) -> Operation[bool] | Refusal:
        changes = _changes(resource)
        name = resource.resource_name
        broker_id: int | None = None
        if resource.resource_type == BROKER and name:
            if not _INTEGER.fullmatch(name):
                return Refusal(
                    ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
                )
            broker_id = int(name)
        elif resource.resource_type not in SERVED:
            return Refusal(
                ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
            )

        def decide(
            image: ClusterImage, epoch: int, layers: BrokerLayers
        ) -> TermDecision[bool] | Refusal:
            if resource.resource_type == TOPIC:
                txns = alter_topic_configs(image, epoch, name, changes, replaces=self.replaces)
            elif resource.resource_type == BROKER:
                txns = alter_broker_configs(
                    image, epoch, broker_id, changes, replaces=self.replaces
                )
            else:
                txns = alter_group_configs(
                    image, epoch, name, changes, layers=layers, replaces=self.replaces
                )
            if isinstance(txns, Refusal):
                return txns
            return TermDecision(() if validate_only else txns, answer=True)

        return decide

    def refuse(self, request: _Request, _version: int, refusal: Refusal) -> _Response:
        return self.response(
            responses=[self._altered(resource, refusal) for resource in request.resources]
        )

    def _altered(self, resource: _Resource, refusal: Refusal | None) -> Any:
        return self.row(
            error_code=refusal.error if refusal else ErrorCode.NONE,
            error_message=refusal.message if refusal else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def seen(self, image: ClusterImage, request: _Request, answer: _Response) -> bool:
        """Whether the image has the values that were set.

        Operations on list items are not waited for.
        """
        failed = {
            (row.resource_type, row.resource_name) for row in answer.responses if row.error_code
        }
        return request.validate_only or all(
            self._resource_is_shown(image, resource)
            for resource in request.resources
            if (resource.resource_type, resource.resource_name) not in failed
        )

    def _resource_is_shown(self, image: ClusterImage, resource: _Resource) -> bool:
        values, changes = _values(image, resource), _changes(resource)
        if self.replaces and len(values) != len(changes):
            return False
        return all(
            change.operation != ConfigOperation.SET or values.get(change.name) == change.value
            for change in changes
        )

    @property
    def work(self) -> ControllerWork:
        return ControllerWork(self.serve, self.refuse, None, self.seen)


def _changes(resource: _Resource) -> list[ConfigChange]:
    if isinstance(resource, AlterConfigsRequest.AlterConfigsResource):
        return [
            ConfigChange(each.name, ConfigOperation.SET, each.value) for each in resource.configs
        ]
    return [ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs]


def _values(image: ClusterImage, resource: _Resource) -> Mapping[str, str]:
    name = resource.resource_name
    if resource.resource_type == BROKER:
        return image.configs_of_broker(int(name) if name else None).values
    if resource.resource_type == GROUP:
        return image.configs_of_group(name).values
    topic = image.topic(name)
    return topic.configs if topic is not None else {}


async def alter_incrementally(
    rooms: Rooms, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Levels of loggers change here, the rest at the controller.

    Answers keep the request's order.
    """
    rows, others = alter_loggers(rooms, request, BROKER_LOGGER)
    if rows and not others.resources:
        return IncrementalAlterConfigsResponse(responses=rows)
    access = rooms.control.access
    answer = await access.perform(INCREMENTAL_ALTER, others, origin_of(context))
    assert isinstance(answer, IncrementalAlterConfigsResponse), "the answer of that API"
    order = {
        (each.resource_type, each.resource_name): n for n, each in enumerate(request.resources)
    }
    answer.responses = sorted(
        [*rows, *answer.responses], key=lambda row: order[row.resource_type, row.resource_name]
    )
    return answer


INCREMENTAL_ALTER: Final = _Alteration(
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    replaces=False,
).work
ALTER: Final = _Alteration(
    AlterConfigsResponse, AlterConfigsResponse.AlterConfigsResourceResponse, replaces=True
).work
