import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logfleet.node.transactions import marker_sender
from logfleet.telemetry.decisions import Query
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ApiVersionsRequest, WriteTxnMarkersRequest

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.transactions.marker_rig import (
    COORDINATOR_EPOCH,
    Coordinator,
    Rig,
    answer_to,
    names_of,
)
from broker_image.tests.unit.waiting import Until


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    host = Host(tmp_path / "data")
    yield Rig(host)
    host.close()


def requests_to(broker: FakeBroker) -> list[dict[int, list[str]]]:
    """The requests that came: producer id -> partitions."""
    return [names_of(request) for request in broker.of(WriteTxnMarkersRequest)]


def led_by(rig: Rig, broker: FakeBroker, broker_id: int = 2, topic: str = "topic") -> None:
    """Another broker leads a partition of the topic; it writes all markers."""
    rig.host.know_broker(broker_id, "127.0.0.1", broker.port)
    rig.host.know_topic(topic, {0: broker_id})
    broker.answers.setdefault(WriteTxnMarkersRequest, answer_to)


A, B, C = ord("a"), ord("b"), ord("c")


@pytest.mark.asyncio
async def test_what_comes_due_in_one_step_and_during_a_request_goes_with_one_request_each(
    rig: Rig, until: Until
) -> None:
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        go_on = asyncio.Event()

        async def answer(request: Any) -> Any:
            await go_on.wait()
            return answer_to(request)

        broker.answers[WriteTxnMarkersRequest] = answer
        rig.due("a", ("topic", 0))
        rig.due("b", ("topic", 0))
        await until(lambda: requests_to(broker))
        rig.due("c", ("topic", 0))
        rig.due("d", ("topic", 0))
        await asyncio.sleep(0)
        go_on.set()
        await until(lambda: len(rig.coordinator.written) == 4)
        assert [set(each) for each in requests_to(broker)] == [{A, B}, {C, ord("d")}]
        assert rig.coordinator.written == {name: {"topic-0"} for name in "abcd"}
        assert len(broker.of(ApiVersionsRequest)) == 1, "one connection"
        (first, *_) = broker.of(WriteTxnMarkersRequest)[0].markers
        assert (first.coordinator_epoch, first.producer_epoch) == (COORDINATOR_EPOCH, 3)
        assert (first.transaction_result, first.transaction_version) == (True, 2)
        rig.close()


@pytest.mark.asyncio
async def test_each_leader_gets_its_own_partitions(rig: Rig, until: Until) -> None:
    async with FakeBroker().running() as two, FakeBroker().running() as three:
        led_by(rig, two, 2, "topic")
        led_by(rig, three, 3, "other")
        rig.due("a", ("topic", 0), ("other", 0))
        await until(lambda: rig.coordinator.written.get("a") == {"topic-0", "other-0"})
        assert (requests_to(two), requests_to(three)) == ([{A: ["topic-0"]}], [{A: ["other-0"]}])
        rig.close()


@pytest.mark.asyncio
async def test_a_refused_marker_is_sent_again_after_a_pause(rig: Rig, until: Until) -> None:
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        errors = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]

        def answer(request: Any) -> Any:
            return answer_to(request, {"topic": errors.pop(0) if errors else 0}.items())

        broker.answers[WriteTxnMarkersRequest] = answer
        rig.due("a", ("topic", 0))
        await until(lambda: rig.coordinator.written)
        assert requests_to(broker) == [{A: ["topic-0"]}] * 3
        assert not len(rig.sender.book)
        rig.close()


@pytest.mark.asyncio
async def test_a_marker_follows_the_leader_of_its_partition_at_once(
    rig: Rig, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "RETRY_S_MIN", 1_000.0)
    async with FakeBroker().running() as two, FakeBroker().running() as three:
        rig.sender._pause_s = 1_000.0
        led_by(rig, two, 2)
        following = asyncio.ensure_future(rig.sender.run(rig.subscription))
        refused = {"topic": ErrorCode.NOT_LEADER_OR_FOLLOWER}
        two.answers[WriteTxnMarkersRequest] = lambda request: answer_to(request, refused.items())
        rig.due("a", ("topic", 0))
        await until(lambda: rig.sender.book.needs_release)
        led_by(rig, three, 3)
        rig.publish()
        await until(lambda: rig.coordinator.written)
        assert requests_to(three) == [{A: ["topic-0"]}]
        following.cancel()
        rig.close()


@pytest.mark.asyncio
async def test_an_answer_is_not_awaited_from_a_broker_that_is_gone(rig: Rig, until: Until) -> None:
    async with FakeBroker().running() as two, FakeBroker().running() as three:
        led_by(rig, two, 2)
        following = asyncio.ensure_future(rig.sender.run(rig.subscription))
        two.answers[WriteTxnMarkersRequest] = lambda _: None
        rig.due("a", ("topic", 0))
        await until(lambda: requests_to(two))
        rig.host.know_broker(2, "127.0.0.1", two.port)  # another registration of it
        led_by(rig, three, 3)
        rig.publish()
        await until(lambda: rig.coordinator.written)
        assert requests_to(three) == [{A: ["topic-0"]}]
        following.cancel()
        rig.close()


@pytest.mark.asyncio
async def test_a_broker_that_cannot_be_reached_is_tried_again(rig: Rig, until: Until) -> None:
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        broker.answers[WriteTxnMarkersRequest] = lambda _: FakeBroker.CLOSE
        rig.due("a", ("topic", 0))
        await until(lambda: requests_to(broker))
        broker.answers[WriteTxnMarkersRequest] = answer_to
        await until(lambda: rig.coordinator.written)
        assert len(broker.of(ApiVersionsRequest)) > 1, "another connection"
        rig.close()


@pytest.mark.asyncio
async def test_a_partition_that_is_gone_has_its_marker_and_one_without_a_leader_waits(
    rig: Rig, until: Until
) -> None:
    rig.host.know_topic("topic", {0: -1, 1: 9})
    following = asyncio.ensure_future(rig.sender.run(rig.subscription))
    rig.due("a", ("topic", 0), ("topic", 1), ("topic", 2), ("deleted", 0))
    await until(lambda: rig.coordinator.written)
    assert rig.coordinator.written == {"a": {"topic-2", "deleted-0"}}
    assert rig.sender.unknown_destinations == 2, "nobody leads one, a missing broker the other"
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        rig.host.know_topic("topic", {0: 2, 1: 2})
        rig.publish()
        await until(lambda: len(rig.coordinator.written["a"]) == 4)
        assert rig.sender.unknown_destinations == 0
        following.cancel()
        rig.close()


@pytest.mark.asyncio
async def test_a_refusal_for_good_is_reported_and_not_repeated(rig: Rig, until: Until) -> None:
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        fenced = {"topic": ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        broker.answers[WriteTxnMarkersRequest] = lambda request: answer_to(request, fenced.items())
        rig.due("a", ("topic", 0))
        await until(lambda: rig.coordinator.refused)
        assert rig.coordinator.refused == {"a": ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        assert not len(rig.sender.book)
        rig.close()


@pytest.mark.asyncio
async def test_markers_of_a_coordinator_that_has_stopped_are_not_sent(
    rig: Rig, until: Until
) -> None:
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        other = Coordinator()
        rig.due("a", ("topic", 0), owner=other)
        rig.due("b", ("topic", 0))
        rig.sender.drop(other)
        await until(lambda: rig.coordinator.written)
        assert requests_to(broker) == [{B: ["topic-0"]}]
        assert not other.written
        rig.close()


@pytest.mark.asyncio
async def test_a_coordinator_that_slept_over_its_lease_sends_nothing(
    rig: Rig, until: Until
) -> None:
    async with FakeBroker().running() as broker:
        led_by(rig, broker)
        rig.host.know_topic("mine", {0: 1})
        rig.boot_now = 10.0
        rig.due("a", ("topic", 0), ("mine", 0))
        await until(lambda: rig.sender._pause_s > 4 * marker_sender.RETRY_S_MIN)
        assert requests_to(broker) == []
        assert not rig.coordinator.written
        rig.lease.deadline_s = 20.0
        rig.host.host("mine")
        await until(lambda: rig.coordinator.written.get("a") == {"topic-0", "mine-0"})
        rig.close()


@pytest.mark.asyncio
async def test_a_partition_led_here_gets_its_marker_without_a_connection(
    rig: Rig, until: Until
) -> None:
    rig.host.know_topic("topic", {0: 1})
    partition = rig.host.host()
    rig.due("a", ("topic", 0))
    rig.due("b", ("topic", 0))
    await until(lambda: len(rig.coordinator.written) == 2)
    assert partition.log_end_offset == 2
    assert not rig.tasks


@pytest.mark.asyncio
async def test_markers_that_wait_long_are_reported_once_for_each_partition_with_the_reason(
    rig: Rig, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "STUCK_MS", 20)
    monkeypatch.setattr(marker_sender, "REPORT_PAUSE_MS", 2)
    rig.host.know_topic("topic", {0: -1})
    rig.due("a", ("topic", 0))
    rig.due("b", ("topic", 0))
    rig.monotonic_now = 10
    rig.due("c", ("topic", 0))
    rig.monotonic_now = 25
    query = Query(kind=("markers_stuck",))
    await until(lambda: rig.host.decisions.select(query))
    rig.monotonic_now = 40
    await until(lambda: len(rig.host.decisions.select(query)) == 2)
    first, second = rig.host.decisions.select(query)
    assert b'"transactions":2' in first
    assert b"no leader" in first
    assert b'"transactions":1' in second
    assert b'"transactional_id":"c"' in second


@pytest.mark.asyncio
async def test_a_marker_is_reported_as_stuck_though_another_coordinator_has_a_new_one(
    rig: Rig, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "STUCK_MS", 20)
    monkeypatch.setattr(marker_sender, "REPORT_PAUSE_MS", 2)
    rig.host.know_topic("topic", {0: -1})
    rig.monotonic_now = 10
    rig.due("new", ("topic", 0))
    rig.monotonic_now = 0
    rig.due("old", ("topic", 0), owner=Coordinator())
    rig.monotonic_now = 25
    await until(lambda: rig.sender._reported_ms > -1)
    (first,) = rig.host.decisions.select(Query(kind=("markers_stuck",)))
    assert b'"transactional_id":"old"' in first
    rig.close()
