import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.client.batches import Batch
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.partitioner import partition_of_key
from logfleet.client.value_producer import Shared, ValueBatch, ValueFailed, ValueProducer
from logfleet.records.batch import HEADER_SIZE
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.fake_log import Log

NOW = 1_700_000_000_000
HEADERS = st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=2
).map(tuple)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.binary(max_size=70), min_size=1, max_size=9)),
        min_size=1,
        max_size=4,
    ),
    st.none() | st.binary(max_size=9),
    HEADERS,
    st.sampled_from([None, ProducerStamp(7, 1, 5), ProducerStamp(7, 1, 5, transactional=True)]),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_a_batch_of_values_is_byte_for_byte_one_of_records(
    runs: list[tuple[int, list[bytes]]],
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    stamp: ProducerStamp | None,
    codec: Codec,
) -> None:
    async def build() -> tuple[bytes, bytes]:
        values = ValueBatch("t", 0, Shared(0, key, headers), 0)
        records = Batch("t", 0, 0)
        for delta, run in runs:
            values.extend(run, NOW + delta, 0)
            for value in run:
                records.add(Record(key, value, NOW + delta, headers), 0)
        values.stamp = records.stamp = stamp
        assert values.count == records.count
        assert values.timestamps == records.timestamps
        return values.build(codec, None), records.build(codec, None)

    found, expected = asyncio.run(build())
    assert found == expected


async def sent(
    producer: ValueProducer, values: Sequence[bytes], pieces: int = 1
) -> list[tuple[int, int]]:
    """Send in so many calls: partition and next offset of each run."""
    step = max(1, -(-len(values) // pieces))
    runs = []
    for start in range(0, len(values), step):
        runs += await producer.send_values("t", values[start : start + step])
    assert sum(run.count for run in runs) == len(values)
    written = [await run.written() for run in runs]
    return [(each.partition, each.offset + 1) for each in written]


@pytest.mark.asyncio
@pytest.mark.parametrize("pieces", [1, 7])
async def test_values_are_written_in_their_order_and_batches_have_a_limit(pieces: int) -> None:
    values = [b"%d" % number * (number % 9) for number in range(1000)]
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with ValueProducer(client, Shared(), batch_bytes=1000) as producer:
            found = await sent(producer, values, pieces)
        assert log.values == {0: values}
        assert found[-1] == (0, 1000)
        assert max(header.batch_length for header in log.headers) < 1000 + HEADER_SIZE
        assert len(log.headers) < 60


@pytest.mark.asyncio
async def test_a_value_larger_than_a_batch_is_sent_alone() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with ValueProducer(client, Shared(), batch_bytes=100) as producer:
            await sent(producer, [b"a", b"b" * 500, b"c"])
        assert log.values == {0: [b"a", b"b" * 500, b"c"]}
        assert [header.record_count for header in log.headers] == [1, 1, 1]


@pytest.mark.asyncio
async def test_no_values_are_nothing_to_wait_for() -> None:
    async with (
        FakeBroker({"t": 1}).running() as broker,
        Client(broker.bootstrap) as client,
        ValueProducer(client, Shared()) as producer,
    ):
        assert await producer.send_values("t", []) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("shared", [Shared(partition=2), Shared(key=b"some key")])
async def test_a_partition_or_a_key_decides_where_values_go(shared: Shared) -> None:
    expected = 2 if shared.key is None else partition_of_key(shared.key, 5)
    async with FakeBroker({"t": 5}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with ValueProducer(client, shared, batch_bytes=200) as producer:
            await sent(producer, [b"v"] * 50)
        assert log.values == {expected: [b"v"] * 50}


@pytest.mark.asyncio
async def test_values_without_a_key_go_to_partitions_that_have_a_leader() -> None:
    async with FakeBroker({"t": 3}).running() as broker, Client(broker.bootstrap) as client:
        broker.leaderless = {("t", 1)}
        log = Log(broker)
        async with ValueProducer(client, Shared(), batch_bytes=100) as producer:
            await sent(producer, [b"%d" % number for number in range(200)])
        assert 1 not in log.values
        assert sum(map(len, log.values.values())) == 200


@pytest.mark.asyncio
async def test_a_batch_that_is_too_large_is_split_and_written_in_order() -> None:
    values = [b"%d" % number for number in range(100)]
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.batch_bytes_max = 500
        async with ValueProducer(client, Shared()) as producer:
            assert await sent(producer, values) == [(0, 100)]
        assert log.values == {0: values}


async def first_failure(broker: FakeBroker, values: Sequence[bytes]) -> ValueFailed:
    """Send the values, of which one is not written."""
    async with Client(broker.bootstrap) as client, ValueProducer(client, Shared()) as producer:
        (run,) = await producer.send_values("t", values)
        with pytest.raises(ValueFailed) as failed:
            await run.written()
        with pytest.raises(KafkaError):
            await producer.flush()
        return failed.value


@pytest.mark.asyncio
async def test_the_first_value_that_is_not_written_is_named() -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        log = Log(broker)
        log.batch_bytes_max = 500
        failed = await first_failure(broker, [b"a"] * 10 + [b"large" * 200] + [b"b"] * 5)
        assert failed.index == 10
        assert isinstance(failed.error, KafkaError)
        assert failed.error.code == ErrorCode.MESSAGE_TOO_LARGE
        assert log.values == {0: [b"a"] * 10 + [b"b"] * 5}


@pytest.mark.asyncio
async def test_a_refused_batch_fails_at_its_first_value() -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        Log(broker).refused = {0: ErrorCode.INVALID_RECORD}
        assert (await first_failure(broker, [b"a", b"b"])).index == 0


@pytest.mark.asyncio
async def test_a_full_buffer_holds_back_what_comes_next() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.held = asyncio.Event()
        async with ValueProducer(client, Shared(), batch_bytes=100) as producer:
            producer.buffer_bytes = 300
            sending = asyncio.create_task(sent(producer, [b"v" * 40] * 50))
            await log.arrived.wait()
            assert not sending.done()
            log.held.set()
            await sending
        assert log.values == {0: [b"v" * 40] * 50}
