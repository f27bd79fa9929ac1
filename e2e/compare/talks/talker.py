"""Holds the talks of client_requests, share_requests and admin_requests with one broker.

The broker is Kafka's or ours.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from logfleet.wire import messages as m
from logfleet.wire.apis import Api, api_of
from logfleet.wire.errors import ErrorCode

from e2e.compare.talks.administration import TALKS
from e2e.compare.talks.clients import TOPIC, World, fit
from e2e.harness.wire_connection import WireConnection

READY_WITHIN_S = 60.0
"""At the first request a coordinator creates its topic and loads it."""
TRY_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # CreateTopics answers before the partition has a leader
}


OWN = {
    "port",
    "cluster_id",
    "topic_id",
    "member_id",
    "leader",  # the leader of a group, which is a member id
    "producer_id",
    "timestamp",  # times of records differ between brokers
    "records",
    "api_keys",  # advertised addresses and configurations have separate tests
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
    "configs",
}
"""Fields that differ between two brokers with the same behaviour."""


ROW_NAMES = (
    "name",
    "group_id",
    "topic",
    "topic_name",
    "log_dir",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition_id",
)
"""Fields by which rows are sorted before they are compared."""


class Talker:
    """One connection, and the values that talks have learned over it."""

    def __init__(self, port: int, log_dir: Path) -> None:
        self.port = port
        self.connection = WireConnection(port)
        cluster_id = self.call(m.MetadataRequest(topics=[]), 12).cluster_id
        self.world = World(cluster_id, str(log_dir))

    def make_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> bytes:
        """Create a topic and wait until it has leaders.

        Return its id. TOPIC's is stored for the talks.
        """
        kind = m.CreateTopicsRequest
        topic = kind.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                kind.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        answer = self.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        topic_id: bytes = answer.topics[0].topic_id
        if name == TOPIC:
            self.world.topic_id = topic_id
        asked = m.ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
                for index in range(partitions)
            ],
        )
        end = time.monotonic() + READY_WITHIN_S
        while any(error_codes(self.call(m.ListOffsetsRequest(topics=[asked]), 7))):
            assert time.monotonic() < end, f"{name} is not led"
            time.sleep(0.05)
        return topic_id

    def steps(self, api: Api, version: int) -> Iterator[tuple[Api, int, Any]]:
        """Yield each response of the talk, with its API and version."""
        talk, answer = TALKS[api.name](self.world, version), None
        while True:
            try:
                step = talk.send(answer)
            except StopIteration:
                return
            request, own = step if isinstance(step, tuple) else (step, None)
            other = api_of(type(request))
            if own is None:
                own = version if other is api else other.max_version
            answer = self.call(fit(request, own), own)
            yield other, own, answer

    def outcome(self, api: Api, version: int) -> list[Any]:
        """Return all responses without OWN.

        They are equal for two brokers with the same behaviour.
        """
        return [(other.name, comparable(answer)) for other, _, answer in self.steps(api, version)]

    def close(self) -> None:
        self.connection.socket.close()

    def reconnect(self) -> None:
        """Connect again after the broker has closed the connection."""
        self.close()
        self.connection = WireConnection(self.port)

    def call(self, request: msgspec.Struct, version: int) -> Any:
        """Send a request, and repeat it while a coordinator asks for a retry, as clients do."""
        end = time.monotonic() + READY_WITHIN_S
        while True:
            answer = self.connection.call(request, version)
            if TRY_AGAIN.isdisjoint(error_codes(answer)):
                return answer
            if time.monotonic() > end:
                raise TimeoutError(f"{READY_WITHIN_S:.0f} s of {request}: {answer}")
            time.sleep(0.05)


def comparable(value: object) -> Any:
    """Return a response as plain data, without OWN.

    Rows whose order Kafka leaves to hash tables are sorted.
    """
    if isinstance(value, list):
        rows = [comparable(each) for each in value]
        named = rows[0] if rows and isinstance(rows[0], dict) else {}
        names = [name for name in ROW_NAMES if name in named]
        return sorted(rows, key=lambda row: [str(row[name]) for name in names])
    if isinstance(value, msgspec.Struct):
        return {
            name: comparable(getattr(value, name))
            for name in value.__struct_fields__
            if name not in OWN
        }
    return value


def error_codes(value: object) -> Iterator[ErrorCode]:
    """Return every error code in a response, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from error_codes(each)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name.endswith("error_code"):
                yield ErrorCode(getattr(value, name))
            else:
                yield from error_codes(getattr(value, name))
