"""What a topic's changes ask of Kafka's admin client, and what becomes of its errors."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from logfleet.client.admin import ClusterDescription, ConfigEntry, ConfigSource
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError
from logfleet.client.metadata import NO_LEADER, Node, PartitionInfo, Topic
from logfleet.client.reconcile import MIN_ISR
from logfleet.resources.plan import (
    AlterTopicConfig,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    PartitionHealth,
    TopicAction,
)
from logfleet.wire.errors import ErrorCode
from logfleet_operator import brokers
from logfleet_operator.admin import AdminRefused, AdminUnavailable
from msgspec.structs import replace

pytestmark = pytest.mark.asyncio

GROW = GrowTopic("flights", 12)
ALTER = AlterTopicConfig("flights", {"retention.ms": "abc"}, [])
CREATE = CreateTopic("flights", 6, None, {})
DELETE = DeleteTopic("flights", None)


class KafkaAdmin:
    """done: the names of requests that changed something. error: the response of `refusing`."""

    refusing = ""
    error: ClientError = ConnectionLost()
    done: list[str]
    partitions: tuple[PartitionInfo, ...] = ()
    fenced: frozenset[int] = frozenset()

    def __init__(self, _: object) -> None:
        type(self).done = []

    async def _answer(self, request: str, *, validate_only: bool = False) -> None:
        if request == self.refusing:
            raise self.error
        if not validate_only:
            self.done.append(request)

    async def list_topics(self) -> list[Topic]:
        await self._answer("list_topics")
        return [Topic("flights", bytes(16), internal=False, partitions=self.partitions)]

    async def find_topic(self, name: str) -> Topic | None:
        await self._answer("find_topic")
        return next((each for each in await self.list_topics() if each.name == name), None)

    async def describe_cluster(self, *, include_fenced: bool) -> ClusterDescription:
        assert include_fenced
        nodes = tuple(Node(each, "host", 9092) for each in (1, 2, 3))
        return ClusterDescription("id", 1, nodes, self.fenced)

    async def topic_config(self, _: str) -> dict[str, ConfigEntry]:
        await self._answer("topic_config")
        source = ConfigSource.DEFAULT_CONFIG
        return {MIN_ISR: ConfigEntry(MIN_ISR, "2", source, read_only=False, sensitive=False)}

    async def topic_values(self, names: Iterable[str], key: str) -> dict[str, str]:
        await self._answer("topic_values")
        assert (list(names), key) == (["flights"], MIN_ISR)
        return {"flights": "2"}

    async def create_topic(self, *_: object, validate_only: bool) -> None:
        await self._answer("create_topic", validate_only=validate_only)

    async def create_partitions(self, *_: object, validate_only: bool) -> None:
        await self._answer("create_partitions", validate_only=validate_only)

    async def alter_config(self, *_: object, validate_only: bool, **__: object) -> None:
        await self._answer("alter_config", validate_only=validate_only)

    async def delete_topic(self, *_: object, **__: object) -> None:
        await self._answer("delete_topic")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> type[KafkaAdmin]:
    class Fresh(KafkaAdmin):
        pass

    async def nothing_moves(_: object) -> dict[object, object]:
        return {}

    monkeypatch.setattr(brokers, "KafkaAdmin", Fresh)
    monkeypatch.setattr(brokers, "list_reassignments", nothing_moves)
    return Fresh


async def perform(actions: Sequence[TopicAction]) -> None:
    client: Any = None
    await brokers.BrokerAdmin(client).perform(actions)


async def test_all_parts_of_a_change_are_done(kafka: type[KafkaAdmin]) -> None:
    await perform([GROW, ALTER])
    assert kafka.done == ["create_partitions", "alter_config"]


async def test_nothing_is_begun_if_one_part_is_refused(kafka: type[KafkaAdmin]) -> None:
    kafka.refusing = "alter_config"
    kafka.error = KafkaError(ErrorCode.INVALID_CONFIG, "not a number")
    with pytest.raises(AdminRefused, match="INVALID_CONFIG: not a number"):
        await perform([GROW, ALTER])
    assert kafka.done == []


@pytest.mark.parametrize(
    "action, request_name, code",
    [
        (CREATE, "create_topic", ErrorCode.TOPIC_ALREADY_EXISTS),
        (DELETE, "delete_topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (DELETE, "delete_topic", ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
async def test_what_an_attempt_did_whose_answer_was_lost_is_no_error(
    kafka: type[KafkaAdmin], action: TopicAction, request_name: str, code: ErrorCode
) -> None:
    kafka.refusing, kafka.error = request_name, KafkaError(code)
    await perform([action])


async def test_what_may_succeed_later_is_no_refusal(kafka: type[KafkaAdmin]) -> None:
    kafka.refusing, kafka.error = "create_partitions", ConnectionLost("gone")
    with pytest.raises(AdminUnavailable, match="gone"):
        await perform([GROW])


async def test_topics_that_are_gone_meanwhile_are_not_there(kafka: type[KafkaAdmin]) -> None:
    client: Any = None
    assert list(await brokers.BrokerAdmin(client).describe({"flights", "ships"})) == ["flights"]
    kafka.refusing, kafka.error = "topic_config", KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await brokers.BrokerAdmin(client).describe({"flights"}) == {}


@pytest.mark.parametrize("request_name", ["find_topic", "list_topics", "topic_config"])
@pytest.mark.parametrize(
    "error", [ConnectionLost("gone"), KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
)
async def test_what_cannot_be_read_is_no_verdict(
    kafka: type[KafkaAdmin], request_name: str, error: ClientError
) -> None:
    kafka.refusing, kafka.error = request_name, error
    client: Any = None
    with pytest.raises(AdminUnavailable, match=str(error)):
        await brokers.BrokerAdmin(client).describe({"flights"})


LACKING = (
    PartitionInfo(0, 1, 0, (1, 2, 3), (1, 2, 3)),
    PartitionInfo(1, 1, 0, (1, 2, 3), (1, 2)),
    PartitionInfo(2, 1, 0, (1, 2, 3), (1,)),
    PartitionInfo(3, NO_LEADER, 0, (1, 2, 3), ()),
)


async def test_what_partitions_lack_is_told_of_each_topic_and_of_all(
    kafka: type[KafkaAdmin],
) -> None:
    client: Any = None
    admin = brokers.BrokerAdmin(client)
    kafka.partitions = LACKING[:1]
    assert await admin.partition_health() == PartitionHealth()
    assert kafka.done == ["list_topics"], "of what lacks nothing no configuration is asked for"
    kafka.partitions = LACKING
    wanted = PartitionHealth(offline=1, under_min_isr=2, under_replicated=3)
    assert await admin.partition_health() == replace(wanted, lost=1)
    kafka.fenced = frozenset({2})
    assert await admin.partition_health() == wanted, "a broker that is away may have it"
    assert (await admin.describe({"flights"}))["flights"].partition_health == wanted


@pytest.mark.parametrize("request_name", ["list_topics", "topic_values"])
async def test_while_no_broker_answers_it_is_not_known_what_partitions_lack(
    kafka: type[KafkaAdmin], request_name: str
) -> None:
    kafka.partitions = LACKING
    kafka.refusing = request_name
    client: Any = None
    with pytest.raises(AdminUnavailable, match="partitions cannot be read"):
        await brokers.BrokerAdmin(client).partition_health()
