"""Replicas of a topic, more or fewer, beside brokers that take none: what a resource asks for is refused in a sentence, or done."""

import asyncio
from types import SimpleNamespace

import pytest
from logfleet.client import reconcile
from logfleet.client.errors import KafkaError
from logfleet.client.metadata import Node, PartitionInfo
from logfleet.resources.plan import ReplicateTopic
from logfleet.wire.errors import ErrorCode


class Fleet:
    """Three brokers in three racks, the third of which is cordoned. moved: what was asked for, by partition."""

    client = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *partitions: PartitionInfo) -> None:
        self.partitions = partitions
        self.moved: dict[int, tuple[int, ...]] = {}
        monkeypatch.setattr(reconcile, "cordoned_brokers", self.cordoned)
        monkeypatch.setattr(reconcile, "list_reassignments", self.moving)
        monkeypatch.setattr(reconcile, "alter_reassignments", self.move)

    async def cordoned(self, _admin, _ids):
        return {3}

    async def moving(self, _client):
        return {}

    async def move(self, _client, wanted):
        self.moved = {key.partition: after for key, after in wanted.items()}
        return {}

    async def describe_cluster(self):
        return SimpleNamespace(
            brokers=[Node(each, "h", 9092, f"rack-{each}") for each in (1, 2, 3)]
        )

    async def list_topics(self):
        return [SimpleNamespace(name="t", partitions=self.partitions)]

    def replicate(self, count: int) -> None:
        asyncio.run(reconcile.perform_all(self, [ReplicateTopic("t", count)]))  # type: ignore[arg-type]


def test_more_replicas_than_brokers_that_take_any_are_refused_with_a_reason(monkeypatch) -> None:
    fleet = Fleet(monkeypatch, PartitionInfo(0, 1, 0, (1, 2), (1, 2)))
    with pytest.raises(KafkaError, match="3 replicas need as many brokers, and 2 take") as caught:
        fleet.replicate(3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert fleet.moved == {}


def test_one_that_is_cordoned_keeps_what_it_has(monkeypatch) -> None:
    fleet = Fleet(monkeypatch, PartitionInfo(0, 3, 0, (3,), (3,)))
    fleet.replicate(3)
    assert sorted(fleet.moved[0]) == [1, 2, 3]


def test_of_fewer_replicas_those_that_are_in_sync_stay(monkeypatch) -> None:
    fleet = Fleet(monkeypatch, PartitionInfo(0, 1, 0, (1, 2, 3), (1, 3)))
    fleet.replicate(2)
    assert fleet.moved == {0: (1, 3)}
