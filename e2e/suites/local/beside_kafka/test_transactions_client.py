"""Our client and command line use transactions by both protocols, on Apache Kafka 4.4.0 and on a broker of ours."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from logfleet.client.cluster import Client
from logfleet.client.consumer import GroupConsumer
from logfleet.client.errors import AbortRequired, ProducerFailed
from logfleet.client.groups import Groups
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition
from logfleet.client.transactions.calls import Member
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.controller.brokers.feature_level import LEVEL_MAX, TRANSACTIONS
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire import messages as m

from e2e.harness.command_line import Reachable, refused, said, until
from e2e.harness.kafka import KafkaBroker, run_tool
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # so that a batch can be written that no coordinator knows of
    "transaction.partition.verification.enable": "false",
}
COMMITTED = ("--isolation", "read_committed", "--offset", "beginning", "--exit-at-end")
both_protocols = pytest.mark.parametrize("version", [1, 2])


# a broker of ours serves transactions from that level on
SIDES = ("kafka", "logfleet") if LEVEL_MAX >= TRANSACTIONS else ("kafka",)


@pytest.fixture(scope="module", params=SIDES)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker | Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with KafkaBroker(directory / "kafka", **CONFIG) as kafka:
            yield kafka
    else:
        with contextlib.closing(Rig(directory)) as rig:
            yield rig.broker(CONFIG)


@pytest.fixture
def topic(broker: Reachable, request: pytest.FixtureRequest) -> str:
    name = "t-" + "".join(each for each in request.node.name if each.isalnum())
    said(broker, "topic", "create", name, "-p", "1")
    return name


def run(broker: Reachable, version: int, work: Callable[[Client], Awaitable[None]]) -> None:
    """version: of the protocol; the cluster has finalized 2."""

    async def main() -> None:
        async with Client(broker.bootstrap) as client:
            if version == 1:
                client.finalized.learn(2**62, {"transaction.version": 1})
            await work(client)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def producing(client: Client, name: str) -> AsyncIterator[TransactionalProducer]:
    async with TransactionalProducer(client, name) as producer:
        await producer.init()
        yield producer


def committed(broker: Reachable, topic: str, *wanted: str) -> None:
    """These values are visible, once the markers are there, and no others."""
    until(lambda: len(said(broker, "consume", topic, *COMMITTED).splitlines()) >= len(wanted))
    assert said(broker, "consume", topic, *COMMITTED).splitlines() == list(wanted)


def listed(broker: Reachable, *arguments: str) -> Any:
    return json.loads(said(broker, "transaction", *arguments, "-o", "json"))


def listed_offsets(broker: Reachable, group: str) -> list[int | None]:
    (found,) = json.loads(said(broker, "group", "describe", group, "-o", "json"))
    return [row["committed"] for row in found["offsets"]]


@both_protocols
def test_only_what_is_committed_is_read(broker: Reachable, topic: str, version: int) -> None:
    async def work(client: Client) -> None:
        async with producing(client, f"id-{topic}") as producer:
            for number in range(6):
                await producer.begin()
                for part in "ab":
                    await (await producer.send(topic, f"{number}{part}".encode()))
                await (producer.abort() if number % 2 else producer.commit())

    run(broker, version, work)
    committed(broker, topic, "0a", "0b", "2a", "2b", "4a", "4b")
    everything = said(broker, "consume", topic, "--from-beginning", "-e").split()
    assert len(everything) == 12


@both_protocols
def test_offsets_are_committed_with_the_records(
    broker: Reachable, topic: str, version: int
) -> None:
    said(broker, "produce", topic, stdin=b"in1\nin2\n")
    group, key = f"g-{topic}", TopicPartition(topic, 0)

    async def work(client: Client) -> None:
        level = IsolationLevel.READ_COMMITTED
        async with (
            GroupConsumer(
                client, group, [topic], reset=OffsetSpec.EARLIEST, isolation=level
            ) as consumer,
            producing(client, f"id-{topic}") as producer,
        ):
            values: list[bytes | None] = []
            while len(values) < 2:
                for fetched in await consumer.poll():
                    values += [record.value for record in fetched.records()]
            former = Member(consumer.member_id, consumer.generation - 1)
            await producer.begin()
            with pytest.raises(AbortRequired, match="ILLEGAL_GENERATION"):
                await producer.add_offsets(group, {key: 2}, former)
            await producer.abort()
            assert await Groups(client).committed(group) == {}
            await producer.begin()
            await producer.send(topic, b"out")
            member = Member(consumer.member_id, consumer.generation)
            await producer.add_offsets(group, {key: 2}, member)
            await producer.commit()

    run(broker, version, work)
    # Kafka shows the former offset for a moment between the marker's append and its commit
    until(lambda: listed_offsets(broker, group) == [2])
    committed(broker, topic, "in1", "in2", "out")


@both_protocols
def test_a_producer_is_fenced_by_the_next_one_and_by_an_abort(
    broker: Reachable, topic: str, version: int
) -> None:
    name = f"id-{topic}"

    async def work(client: Client) -> None:
        async with producing(client, name) as first:
            await first.begin()
            await (await first.send(topic, b"first"))
            async with producing(client, name) as second:
                with pytest.raises(ProducerFailed, match="PRODUCER_FENCED"):
                    await first.commit()
                await second.begin()
                await (await second.send(topic, b"second"))
                await asyncio.to_thread(abort_by_name)
                with pytest.raises(ProducerFailed, match="PRODUCER_FENCED"):
                    await second.commit()

    def abort_by_name() -> None:
        (row,) = listed(broker, "list", "--state", "Ongoing", "--pattern", f"id-{topic[:-1]}.")
        assert row["name"] == name
        (described,) = listed(broker, "describe", name)
        assert described["partitions"] == [{"topic": topic, "partition": 0}]
        assert described["durationMs"] < 60_000
        assert listed(broker, "find-hanging", "-t", topic, "--idle", "0") == []
        said(broker, "transaction", "abort", name, "--yes")
        (described,) = listed(broker, "describe", name)
        assert (described["state"], described["partitions"]) == ("Empty", [])

    run(broker, version, work)
    committed(broker, topic)


def test_lines_are_written_in_transactions(broker: Reachable, topic: str) -> None:
    produce = ("produce", topic, "--transactional-id", f"id-{topic}")
    said(broker, *produce, "--transaction-records", "2", stdin=b"1\n2\n3\n")
    line = refused(broker, *produce, "--json", stdin=b'{"value": "4"}\nbad\n')
    assert line.endswith("; the lines from 1 on are not committed")
    committed(broker, topic, "1", "2", "3")


def test_a_hanging_transaction_is_found_and_aborted(
    broker: KafkaBroker | Broker, topic: str
) -> None:
    said(broker, "produce", topic, stdin=b"before\n")
    with WireConnection(broker.port) as connection:
        init = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        producer_id = connection.call(init, 4).producer_id
        stamp = ProducerStamp(producer_id, 0, 0, transactional=True)
        batch = build_batch([Record(None, b"ghost", 0)], producer=stamp)
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        written = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
        request = m.ProduceRequest(
            transactional_id="nobody", acks=-1, timeout_ms=10_000, topic_data=[written]
        )
        answer = connection.call(request, 11)
        assert answer.responses[0].partition_responses[0].error_code == 0
    said(broker, "produce", topic, stdin=b"behind\n")
    committed(broker, topic, "before")
    (found,) = listed(broker, "find-hanging", "-t", topic, "--idle", "0")
    assert (found["startOffset"], found["producerId"]) == (1, producer_id)
    found_by_kafka = run_tool(
        "org.apache.kafka.tools.TransactionsCommand",
        ["--bootstrap-server", broker.bootstrap, "find-hanging", "--topic", topic,
         "--max-transaction-timeout", "0"],
    )  # fmt: skip
    assert [line.split()[:3] for line in found_by_kafka.splitlines()[1:]] == [
        [topic, "0", str(producer_id)]
    ]
    abort = ("transaction", "abort", "-t", topic, "-p", "0", "--start-offset")
    said(broker, *abort, "1", "--yes")
    committed(broker, topic, "before", "behind")
    assert "no open transaction begins there" in refused(broker, *abort, "1", "--yes")
