"""A whole broker, scraped: everything in the table is reported, and is true."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from logfleet.metadata.kinds.brokers import FENCE, FENCED, FenceValue
from logfleet.metadata.store import Put, Txn
from logfleet.node.broker import Broker
from logfleet.records.record import Record, build_batch
from logfleet.telemetry.metric import MetricType
from logfleet.telemetry.table import METRICS
from logfleet.wire.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    ProduceRequest,
)

from broker_image.tests.unit.controller.running.controller_rig import (
    WHAT_NO_CONTROLLER_EXPECTS,
    until,
)
from broker_image.tests.unit.node.broker_rig import ask, config
from broker_image.tests.unit.node.metrics.metric_values import MetricValues, read

pytestmark = pytest.mark.asyncio


class Scraped:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        (self.listener,) = broker.opened.listeners.all
        self.text = ""

    async def ask(self, request: Any, version: int) -> Any:
        return await ask(self.listener.port, request, version)

    async def metric_values(self) -> MetricValues:
        self.text = await self.broker.opened.observation.sources.text()
        return read(self.text)

    async def topic(self, name: str, partitions: int) -> None:
        row = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1
        )
        answer = await self.ask(CreateTopicsRequest(topics=[row], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == 0

    async def produce(self, name: str, index: int, count: int) -> Any:
        batch = build_batch([Record(None, b"value", self.broker.rooms.clock.now_ms())] * count)
        data = ProduceRequest.PartitionProduceData(index=index, records=memoryview(batch))
        topic = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        await self.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), 9)
        return len(batch)

    async def commit(self, group: str, name: str, index: int, offset: int) -> None:
        while (await self.ask(FindCoordinatorRequest(key=group), 3)).error_code:
            pass
        row = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[row])
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, topics=[topic]
        )
        while (await self.ask(request, 8)).topics[0].partitions[0].error_code:
            pass


@asynccontextmanager
async def running(path: Path, **given: str) -> Any:
    async with Broker(config(path, offsets_topic_num_partitions="1", **given)) as broker:
        await until(
            lambda: broker.not_ready() is None
        )  # it looks through its replicas now and then
        yield Scraped(broker)


async def test_everything_in_the_table_is_reported_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as scraped:
        await scraped.metric_values()
    kinds = dict(
        line.split()[2:] for line in scraped.text.splitlines() if line.startswith("# TYPE")
    )
    assert kinds == {name: str(metric.kind) for name, metric in METRICS.items()}


async def test_labels_are_those_of_the_table(tmp_path: Path) -> None:
    async with running(tmp_path) as scraped:
        await scraped.topic("t", 1)
        await scraped.produce("t", 0, 1)
        await scraped.produce("none", 0, 1)
        await scraped.commit("g", "t", 0, 0)
        values = await scraped.metric_values()
    found = {}
    for name, labels in values:
        stem = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        metric = METRICS.get(name) or METRICS[stem]
        names = {label for label, _ in labels}
        found[metric.name] = names - {"le"} if metric.kind is MetricType.HISTOGRAM else names
    assert found == {name: set(metric.labels) for name, metric in METRICS.items() if name in found}
    assert len(found) > len(METRICS) - 3  # nothing is uncleanable


async def test_traffic_logs_and_lag_are_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as scraped:
        await scraped.topic("t", 2)
        size = await scraped.produce("t", 1, 5)
        await scraped.produce("none", 0, 1)
        await scraped.commit("g", "t", 1, 2)
        await scraped.commit("g", "t", 0, 0)
        wanted = FetchRequest.FetchPartition(partition=1, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
        await scraped.ask(FetchRequest(max_bytes=1 << 20, min_bytes=1, topics=[topic]), 12)
        values = await scraped.metric_values()
    one = {"topic": "t", "partition": "1"}
    assert values("logfleet_topic_bytes_in_total", topic="t") == size
    assert values("logfleet_topic_bytes_out_total", topic="t") == size
    assert values("logfleet_topic_messages_in_total", topic="t") == 5
    assert values("logfleet_bytes_out_total") == size
    assert values("logfleet_messages_in_total") == 5 + 2  # and what the coordinator wrote
    assert values("logfleet_partition_log_end_offset", **one) == 5
    assert values("logfleet_partition_high_watermark", **one) == 5
    assert values("logfleet_partition_size_bytes", **one) == size
    assert values("logfleet_partition_segments", **one) == 1
    assert values("logfleet_partitions_led") == 3
    assert values("logfleet_group_committed_offset", group="g", **one) == 2
    assert values("logfleet_group_partition_lag", group="g", **one) == 3
    assert values("logfleet_group_lag", group="g", topic="t") == 3
    assert values("logfleet_groups", state="Empty") == 1
    assert values("logfleet_groups", state="Stable") == 0
    assert values("logfleet_group_offsets") == 2
    errors = "logfleet_request_errors_total"
    assert values(errors, api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert values("logfleet_ready") == values("logfleet_active_controller") == 1
    assert values("logfleet_active_brokers") == 1
    assert (
        values("logfleet_offline_partitions") == values("logfleet_under_replicated_partitions") == 0
    )


async def test_too_many_are_reported_in_total_only(tmp_path: Path) -> None:
    async with running(tmp_path, logfleet_metrics_series_max="1") as scraped:
        await scraped.topic("t", 2)
        size = await scraped.produce("t", 1, 5)
        await scraped.commit("g", "t", 1, 2)
        await scraped.commit("g", "t", 0, 0)
        values = await scraped.metric_values()
    assert values("logfleet_bytes_in_total") > size
    assert values("logfleet_topic_bytes_in_total", topic="t") is None
    assert not [name for name in values.names() if name.startswith("logfleet_partition_")]
    assert values("logfleet_group_partition_lag", group="g", topic="t", partition="1") is None
    assert values("logfleet_group_lag", group="g", topic="t") == 3
    left_out = "logfleet_metrics_left_out"
    assert values(left_out, kind="partitions") == 3
    assert values(left_out, kind="topics") == 2
    assert values(left_out, kind="group offsets") == 2


async def test_what_a_topic_had_is_not_forgotten_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as scraped:
        await scraped.topic("t", 1)
        size = await scraped.produce("t", 0, 5)
        partition = scraped.broker.rooms.partitions.get("t", 0)
        scraped.broker.rooms.partitions.remove(partition)
        values = await scraped.metric_values()
        scraped.broker.rooms.partitions.add(partition)
        assert values("logfleet_topic_bytes_in_total", topic="t") is None
        assert values("logfleet_bytes_in_total") == size
        assert values("logfleet_messages_in_total") == 5


async def test_a_fetch_that_waits_is_in_the_purgatory(tmp_path: Path) -> None:
    async with running(tmp_path) as scraped:
        await scraped.topic("t", 1)
        wanted = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[wanted])
        size = await scraped.produce("t", 0, 1)
        request = FetchRequest(
            max_wait_ms=60_000, max_bytes=1 << 20, min_bytes=size + 1, topics=[topic]
        )
        waiting = asyncio.ensure_future(scraped.ask(request, 12))
        while (await scraped.metric_values())("logfleet_purgatory_size", operation="Fetch") != 1:
            # a scrape without a step to wait for does not let others run
            await asyncio.wait([waiting], timeout=0)
            assert not waiting.done(), waiting
        await scraped.produce("t", 0, 1)
        await waiting
        values = await scraped.metric_values()
        assert values("logfleet_purgatory_size", operation="Fetch") == 0
        assert values("logfleet_request_remote_seconds_sum", api="Fetch") > 0
        # what was read before the wait was not sent
        assert values("logfleet_topic_bytes_out_total", topic="t") == 2 * size


async def test_it_is_ready_while_it_may_lead(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        await until(lambda: broker.not_ready() is None)
        epoch = broker.image.brokers[1].epoch
        fenced = FENCE.encode(FenceValue(epoch, FENCED))
        await broker.opened.stored.world.store.txn(Txn(success=[Put(FENCE.key(1), fenced)]))
        await until(lambda: broker.not_ready() is not None)
        assert broker.failure is None
        await until(lambda: broker.not_ready() is None)
    assert broker.not_ready() == "stopping"


async def test_while_the_metadata_store_is_away_it_stays_as_ready_as_it_was(
    tmp_path: Path,
) -> None:
    """Its lease ends then; if all brokers became not ready at once, that would help no client."""
    async with Broker(config(tmp_path)) as broker:
        await until(lambda: broker.not_ready() is None)
        registrar = broker.opened.membership._registrar
        registration, registrar._registration = registrar._registration, None
        assert broker.opened.membership.registration is None
        assert broker.not_ready() is None
        registrar._registration = registration


async def test_a_controller_that_fails_at_what_is_stored_is_reported_and_its_broker_serves_on(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as scraped:
        await scraped.topic("t", 1)
        broker = scraped.broker
        await broker.opened.stored.world.store.txn(Txn(success=WHAT_NO_CONTROLLER_EXPECTS))
        await until(lambda: broker.rooms.control.controller.failed_terms)
        await scraped.produce("t", 0, 1)
        values = await scraped.metric_values()
        assert values("logfleet_controller_failed_terms_total") >= 1
        assert values("logfleet_partition_log_end_offset", topic="t", partition="0") == 1
        assert values("logfleet_ready") == 1
        assert broker.failure is None
