"""Configurations of topics, brokers and groups beside a running Apache Kafka 4.4.0: the same keys, the same rules."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare.brokers import Pair
from e2e.compare.corpora.config_edges import (
    BROKER,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    Change,
)
from e2e.compare.side import Side
from e2e.harness.wire_connection import Disconnected, WireConnection

pytestmark = [pytest.mark.xdist_group("configs-beside-kafka"), pytest.mark.timeout(900)]
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "message.max.bytes": "900000",
    "log.retention.hours": "24",
    "group.share.delivery.count.limit": "7",
}
NAME = "configured"
SEEN_WITHIN_S = 60.0
DYNAMIC_DEFAULT, DEFAULT = 3, 5
ENOUGH = 8
"""Connections. Kafka also limits those to its controller, of which it has three of its own: with a limit of two it closes some
(SocketServer: Processor.closeExcessConnections), and the change itself is answered through one of them."""


@pytest.fixture(scope="module")
def talkers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with Pair(tmp_path_factory.mktemp("both"), CONFIG) as both:
        for talker in both.sides:
            talker.make_topic(NAME)
        yield both.sides


@pytest.fixture
def kafka(talkers: tuple[Side, Side]) -> Side:
    return talkers[0]


@pytest.fixture
def ours(talkers: tuple[Side, Side]) -> Side:
    return talkers[1]


def alter(talker: Side, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Any:
    request = m.IncrementalAlterConfigsRequest
    configs = [
        request.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = talker.call(request(resources=[resource], validate_only=validate_only), 1)
    return answer.responses[0]


def described(
    talker: Side, kind: int, name: str, *, synonyms: bool = True
) -> dict[str, tuple[object, ...]]:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    (result,) = talker.call(request, 4).results
    assert result.error_code == ErrorCode.NONE, result
    return {
        row.name: (
            row.value,
            row.config_type,
            row.read_only,
            row.is_sensitive,
            row.config_source,
            [(each.name, each.value, each.source) for each in row.synonyms],
        )
        for row in result.configs
    }


def change_and_see(talker: Side, kind: int, name: str, *changes: Change) -> None:
    """Change it and wait until the broker shows all of it: Kafka answers before it has."""
    assert alter(talker, kind, name, *changes).error_code == ErrorCode.NONE
    wanted = {key for key, operation, _ in changes if operation == SET}
    gone = {key for key, operation, _ in changes if operation == DELETE}
    end = time.monotonic() + SEEN_WITHIN_S
    while True:
        own = {TOPIC: 1, GROUP: 8, BROKER: 2 if name else 3}[kind]
        shown = {key for key, row in described(talker, kind, name).items() if row[4] == own}
        if wanted <= shown and not gone & shown:
            return
        assert time.monotonic() < end, (wanted - shown, gone & shown)
        time.sleep(0.05)


def test_a_topic_has_kafkas_configs_and_defaults(kafka: Side, ours: Side) -> None:
    theirs, own = described(kafka, TOPIC, NAME), described(ours, TOPIC, NAME)
    # eligible leader replicas (KIP-966): Kafka's controller sets the default as a configuration of the cluster
    assert theirs.pop("min.insync.replicas")[4] == DYNAMIC_DEFAULT
    assert own.pop("min.insync.replicas")[4] == DEFAULT
    assert own.pop("logfleet.record.validation")[4] == DEFAULT
    assert own == theirs


SET_ELSEWISE = {
    "controller.listener.names",
    "controller.quorum.voters",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "offsets.topic.replication.factor",
    "process.roles",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}
"""What the files of the two brokers must say differently, and where data goes if nothing is said."""
KNOWN_DIFFERENCES = {
    "min.insync.replicas": "set for the cluster by Kafka's controller",
    "listener.security.protocol.map": "cannot be changed while the broker runs",
}


def test_a_broker_has_kafkas_configs_and_defaults(kafka: Side, ours: Side) -> None:
    theirs, own = described(kafka, BROKER, "1"), described(ours, BROKER, "1")
    assert {name for name in own if not name.startswith("logfleet.")} == set(theirs)
    different = {name for name in theirs if own[name] != theirs[name]}
    assert different == SET_ELSEWISE | KNOWN_DIFFERENCES.keys()


def test_a_group_has_kafkas_configs_and_defaults(kafka: Side, ours: Side) -> None:
    for talker in (kafka, ours):
        change_and_see(talker, GROUP, "g", ("share.isolation.level", SET, "read_committed"))
    assert described(ours, GROUP, "g") == described(kafka, GROUP, "g")
    assert described(ours, GROUP, "other") == described(kafka, GROUP, "other")


LAYERS: list[tuple[int, str, tuple[Change, ...]]] = [
    (
        BROKER,
        "1",
        (
            ("message.max.bytes", SET, " 500000 "),
            ("leader.replication.throttled.rate", SET, "1000"),
            ("listener.name.plaintext.max.connections", SET, "500"),
            ("log.retention.ms", SET, "3600000"),
            ("log.cleaner.min.cleanable.ratio", SET, ".25"),
        ),
    ),
    (
        BROKER,
        "",
        (
            ("message.max.bytes", SET, "600000"),
            ("log.cleanup.policy", SET, "compact , delete"),
            ("log.cleaner.io.max.bytes.per.second", SET, "1e7"),
            ("listener.name.plaintext.max.connection.creation.rate", SET, "70000"),
        ),
    ),
    (
        TOPIC,
        "layered",
        (
            ("max.message.bytes", SET, " 5 "),
            ("retention.ms", SET, "6"),
            ("min.cleanable.dirty.ratio", SET, "0"),
        ),
    ),
]


def test_what_was_set_where_is_told_as_kafka_tells_it(kafka: Side, ours: Side) -> None:
    """Values of the broker, of all brokers and of a topic, set while both run, with every synonym in Kafka's order.

    Not compared: log.retention.hours, which Kafka shows with its default while log.retention.ms is dynamic, whatever the file says.
    """
    names = {key for _, _, changes in LAYERS for key, _, _ in changes} | {
        "log.retention.minutes",
        "max.connections",
        "cleanup.policy",
    }
    answers = []
    for talker in (kafka, ours):
        talker.make_topic("layered")
        for kind, name, changes in LAYERS:
            change_and_see(talker, kind, name, *changes)
        cluster = described(talker, BROKER, "")
        cluster.pop("min.insync.replicas", None)  # see above
        rows = [described(talker, BROKER, "1"), described(talker, TOPIC, "layered")]
        rows.append(described(talker, TOPIC, NAME))
        answers.append(
            [
                cluster,
                *({name: row for name, row in each.items() if name in names} for each in rows),
            ]
        )
        for kind, name, changes in LAYERS:
            undone = [(key, 1, None) for key, _, _ in changes]
            change_and_see(talker, kind, name, *undone)
    for theirs, own in zip(*answers, strict=True):
        assert own.keys() == theirs.keys()
        assert [(own[key], theirs[key]) for key in own if own[key] != theirs[key]] == []


@contextmanager
def limited(talker: Side, key: str, value: int) -> Iterator[None]:
    change_and_see(talker, BROKER, "1", (key, SET, str(value)))
    yield
    change_and_see(talker, BROKER, "1", (key, DELETE, None))


def is_served(connection: WireConnection) -> bool:
    try:
        connection.call(m.ApiVersionsRequest(), 0)
    except (Disconnected, ConnectionError):
        return False
    return True


def test_an_address_with_enough_connections_is_refused_more(kafka: Side, ours: Side) -> None:
    """Three for an address; one of them is the talker's."""
    for talker in (kafka, ours):
        with limited(talker, "max.connections.per.ip", 3), ExitStack() as stack:
            served = [is_served(stack.enter_context(WireConnection(talker.port))) for _ in range(4)]
            assert served == [True, True, False, False], talker.port


def test_who_comes_beyond_the_limit_is_served_when_another_leaves(kafka: Side, ours: Side) -> None:
    for talker in (kafka, ours):
        with limited(talker, "max.connections", ENOUGH), ExitStack() as stack:
            others = [stack.enter_context(WireConnection(talker.port)) for _ in range(ENOUGH - 1)]
            assert all(map(is_served, others)), talker.port
            last = stack.enter_context(WireConnection(talker.port))
            last.send(m.ApiVersionsRequest(), 0)
            last.socket.settimeout(1)
            with pytest.raises(TimeoutError):
                last.socket.recv(1, socket.MSG_PEEK)
            last.socket.settimeout(SEEN_WITHIN_S)
            others[0].socket.close()
            assert last.receive(m.ApiVersionsRequest, 0).error_code == ErrorCode.NONE
