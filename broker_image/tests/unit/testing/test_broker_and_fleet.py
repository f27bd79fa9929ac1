"""Brokers and fleets of `logfleet.testing`, without pytest's fixtures."""

import asyncio
from pathlib import Path

import pytest
from logfleet.client.cluster import Client
from logfleet.client.producer import Producer
from logfleet.testing import Broker, Fleet, OrderFailed


def test_a_broker_keeps_its_records_when_it_is_killed_and_started_again() -> None:
    with Broker(topics={"orders": 2}) as broker:
        assert broker.records("orders") == []
        assert (broker.end("orders", 1), broker.leader("orders", 1).id) == (0, 1)
        first = broker.pid
        broker.kill()
        assert not broker.running
        broker.restart()
        assert broker.pid != first
        assert broker.end("orders", 1) == 0
        assert "registered" in {each["kind"] for each in broker.events()}
        assert "broker_started" in broker.log_tail()
    assert not broker.directory.exists()


async def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    async with Client(bootstrap) as client, Producer(client) as producer:
        for value in values:
            await producer.send(topic, value, partition=0, headers=((value.decode(), b"h"),))


def test_records_are_read_whole_as_soon_as_there_are_enough() -> None:
    with Broker(topics={"orders": 2}) as broker:
        asyncio.run(send(broker.bootstrap, "orders", [b"one", b"two"]))
        seen = broker.records("orders", count=1)
        assert [(each.partition, each.offset, each.value) for each in seen] == [
            (0, 0, b"one"),
            (0, 1, b"two"),
        ]
        assert seen[1].headers == (("two", b"h"),)
        assert broker.records("orders", partition=1) == []
        with pytest.raises(OrderFailed, match=r"orders has 2 of 3 records after 0\.5 s"):
            broker.records("orders", count=3, timeout_s=0.5)


def test_a_broker_that_is_paused_answers_when_it_is_resumed() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.pause()
        with pytest.raises(OrderFailed):
            broker.end("orders", timeout_s=0.3)
        broker.resume()
        assert broker.end("orders") == 0


def test_a_broker_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(OrderFailed, match=r"log\.retention\.ms"),
        Broker({"log.retention.ms": "one day"}),
    ):
        pass


def test_an_unknown_topic_and_an_unknown_order_are_named() -> None:
    with Broker() as broker:
        with pytest.raises(OrderFailed, match="payments"):
            broker.end("payments", timeout_s=0.5)
        with pytest.raises(OrderFailed, match="there is no order 'dance'"):
            broker.order("dance")


def test_another_broker_leads_when_the_leader_is_killed() -> None:
    with Fleet(3, zones=["a", "b", "c"], topics={"orders": 3}) as fleet:
        assert [each.config["broker.rack"] for each in fleet] == ["a", "b", "c"]
        leader = fleet.leader("orders", 0)
        leader.kill()
        assert fleet.leader("orders", 0).id != leader.id
        leader.restart()
        assert {each["by"] for each in fleet.events(kind=["registered"])} == {1, 2, 3}
    assert not fleet.directory.exists()


def test_a_fleet_serves_while_two_of_three_are_paused_and_takes_them_back() -> None:
    """It cannot take records of acks=all then; a paused broker is no longer leader."""
    with Fleet(3, topics={"orders": 1}) as fleet:
        leader = fleet.leader("orders")
        leader.pause()
        other = fleet.leader("orders", timeout_s=30)
        assert other is not leader
        with pytest.raises(OrderFailed, match="is paused"):
            leader.events()
        leader.resume()
        assert fleet.end("orders") == 0
        assert leader.end("orders") == 0
        leader.stop()
        assert fleet.leader("orders").id != leader.id


def test_a_directory_of_the_test_stays(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, topics={"orders": 1}):
        pass
    with Broker(directory=tmp_path) as broker:
        assert broker.end("orders") == 0
        assert broker.log.count("broker_started") == 2
    assert (tmp_path / "data-1").is_dir()
