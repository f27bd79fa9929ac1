"""What administrators see and do with consumer groups is what they see and do on Apache Kafka 4.4.0, asked in the same run."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from e2e.harness.kafka import KafkaBroker, try_tool
from e2e.harness.processes import Rig
from e2e.harness.topics import PATIENCE_S, create_topic

TOPIC = "topic"
PARTITIONS = 2
PER_PARTITION = 5
GROUPS = ["live", "idle", "missing"]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Scene:
    """A broker with two groups: `live` has one member, who has read and committed all; `idle` has offsets only."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        create_topic(bootstrap, TOPIC, PARTITIONS)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(PARTITIONS * PER_PARTITION):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        self.member = self._consumer("live")
        self.member.subscribe([TOPIC])
        for _ in range(PARTITIONS * PER_PARTITION):
            message = self.member.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None, message.error()
        self.member.commit(asynchronous=False)
        idle = self._consumer("idle")
        idle.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
        idle.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "client.id": "client",
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
                "max.poll.interval.ms": 3_600_000,  # it is not polled while the tools run
            }
        )

    def close(self) -> None:
        self.member.close()

    # -- by the client library

    def listed(self, *states: ConsumerGroupState) -> list[tuple[Any, ...]]:
        chosen = {"states": set(states)} if states else {}
        answer = self.admin.list_consumer_groups(**chosen).result(timeout=PATIENCE_S)
        assert answer.errors == []
        return sorted(
            (each.group_id, each.is_simple_consumer_group, each.state.name, each.type.name)
            for each in answer.valid
        )

    def described(self) -> dict[str, Any]:
        answers = self.admin.describe_consumer_groups(GROUPS, include_authorized_operations=True)
        return {group: self._said(answer, self._group) for group, answer in answers.items()}

    @staticmethod
    def _group(group: Any) -> tuple[Any, ...]:
        operations = sorted(each.name for each in group.authorized_operations)
        members = [
            (
                UUID.sub("ID", each.member_id),
                each.client_id,
                each.host,
                each.group_instance_id,
                sorted((part.topic, part.partition) for part in each.assignment.topic_partitions),
            )
            for each in group.members
        ]
        return (
            group.is_simple_consumer_group,
            group.partition_assignor,
            group.state.name,
            group.type.name,
            operations,
            members,
        )

    def offsets(self, group: str) -> Any:
        request = [ConsumerGroupTopicPartitions(group)]
        return self._said(self.admin.list_consumer_group_offsets(request)[group], self._offsets)

    def move(self, group: str, offset: int) -> Any:
        """What is answered to setting the group's offset in partition 0."""
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, offset)])]
        answer = self.admin.alter_consumer_group_offsets(wanted)[group]
        return self._said(answer, self._offsets)

    @staticmethod
    def _offsets(answer: Any) -> list[tuple[Any, ...]]:
        return [
            (each.topic, each.partition, each.offset, each.error and each.error.name())
            for each in sorted(answer.topic_partitions, key=lambda part: part.partition)
        ]

    def delete(self, *groups: str) -> dict[str, Any]:
        answers = self.admin.delete_consumer_groups(list(groups), request_timeout=PATIENCE_S)
        return {group: self._said(answer, lambda _: "deleted") for group, answer in answers.items()}

    @staticmethod
    def _said(answer: Any, plain: Callable[[Any], Any]) -> Any:
        try:
            return plain(answer.result(timeout=PATIENCE_S))
        except KafkaException as error:
            return error.args[0].name()

    # -- by Kafka's tool

    def tool(self, *arguments: str) -> tuple[int, list[str]]:
        """Exit status and words of kafka-consumer-groups.sh, without what differs from run to run."""
        main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        done = try_tool(main, ["--bootstrap-server", self.bootstrap, *arguments])
        said = UUID.sub("ID", done.stdout + done.stderr).replace(self.bootstrap, "BOOTSTRAP")
        lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
        return done.returncode, sorted(line for line in lines if line and "SLF4J" not in line)


@pytest.fixture
def ours(rig: Rig) -> Iterator[Scene]:
    scene = Scene(rig.broker().bootstrap)
    yield scene
    scene.close()


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Scene]:
    with KafkaBroker(tmp_path / "kafka", group_initial_rebalance_delay_ms="0") as kafka:
        scene = Scene(kafka.bootstrap)
        yield scene
        scene.close()


def by_library(scene: Scene) -> list[tuple[str, Any]]:
    """Every question and its answer, in order."""
    return [
        ("list", scene.listed()),
        ("list empty", scene.listed(ConsumerGroupState.EMPTY)),
        ("list stable", scene.listed(ConsumerGroupState.STABLE)),
        ("describe", scene.described()),
        ("offsets", [scene.offsets(group) for group in GROUPS]),
        ("move", [scene.move(group, 1) for group in ("live", "idle", "new")]),
        ("offsets then", [scene.offsets(group) for group in ("live", "idle", "new")]),
        ("delete", scene.delete("live", "new", "missing")),
        ("list then", scene.listed()),
    ]


def by_tool(scene: Scene) -> list[tuple[str, Any]]:
    reset = ("--reset-offsets", "--topic", TOPIC)
    questions = [
        ("--list", "--state"),
        ("--describe", "--all-groups"),
        ("--describe", "--group", "live", "--members", "--verbose"),
        ("--describe", "--all-groups", "--state"),
        (*reset, "--group", "idle", "--to-latest", "--execute"),
        (*reset, "--group", "live", "--to-earliest", "--execute"),
        ("--delete", "--group", "live", "--group", "idle", "--group", "missing"),
    ]
    return [(" ".join(arguments), scene.tool(*arguments)) for arguments in questions]


@pytest.mark.timeout(600)
def test_groups_are_administered_as_on_kafka(ours: Scene, theirs: Scene) -> None:
    with ThreadPoolExecutor(2) as both:
        for questions in (by_library, by_tool):
            answered, expected = both.map(questions, (ours, theirs))
            for (question, answer), (_, kafkas) in zip(answered, expected, strict=True):
                assert answer == kafkas, question
