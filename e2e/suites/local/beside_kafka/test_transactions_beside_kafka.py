"""The APIs of transactional producers in every version, on a broker of ours and on Apache Kafka 4.4.0.

The same steps, the same outcome. Producer ids are numbered in the order in which they were given. A step that meets a transaction
that is being completed is repeated: only that takes a time of its own on each broker.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from logfleet.config.broker import broker_config
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.node.broker import Broker
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire import messages as m

from e2e.harness.kafka import KafkaBroker
from e2e.harness.wire_connection import TRY_AGAIN, WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
UNKNOWN_ID = 123_456_789
"""A producer id that nobody was given."""
Step = tuple[str, Any]
Addition = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Pair(NamedTuple):
    """A producer id and an epoch."""

    producer_id: int = -1
    epoch: int = -1

    def with_epoch(self, epoch: int) -> "Pair":
        return Pair(self.producer_id, epoch)


NOBODY = Pair()


class Client:
    """A connection to one of the brokers, and the steps that were taken on it."""

    def __init__(self, port: int) -> None:
        self.connection = WireConnection(port)
        self.steps: list[Step] = []
        self._ids: dict[int, str] = {-1: "none", UNKNOWN_ID: "unknown"}
        self._names = itertools.count()
        creatable = m.CreateTopicsRequest.CreatableTopic(
            name="t", num_partitions=3, replication_factor=1
        )
        create = m.CreateTopicsRequest(topics=[creatable], timeout_ms=30_000)
        self.topic_id = self.connection.call(create, 7).topics[0].topic_id
        for kind in (0, 1):
            find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            while self.connection.call(find, 4).coordinators[0].error_code:
                pass

    def new_id(self, what: str) -> str:
        return f"{what}-{next(self._names)}"

    def _note(self, what: str, ask: Callable[[], tuple[Iterable[int], Any]]) -> None:
        """Take a step until its errors last."""
        while True:
            codes, outcome = ask()
            if not TRY_AGAIN & set(codes):
                break
        self.steps.append((what, outcome))

    def _shown(self, pair: Pair) -> str:
        return f"{self._ids.get(pair.producer_id, '?')}/{pair.epoch}"

    def init(
        self, name: str | None, version: int = 5, *, timeout_ms: int = 60_000, pair: Pair = NOBODY
    ) -> Pair:
        found = NOBODY

        def ask() -> tuple[Iterable[int], Any]:
            nonlocal found
            request = m.InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=pair.producer_id,
                producer_epoch=pair.epoch,
            )
            answer = self.connection.call(request, version)
            found = Pair(answer.producer_id, answer.producer_epoch)
            self._ids.setdefault(found.producer_id, f"P{len(self._ids)}")
            return [answer.error_code], (answer.error_code, self._shown(found))

        self._note(f"init {name} v{version} {timeout_ms} {self._shown(pair)}", ask)
        return found

    def add(self, name: str, pair: Pair, topics: Mapping[str, list[int]], version: int = 3) -> None:
        def ask() -> tuple[Iterable[int], Any]:
            request = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=pair.producer_id,
                v3_and_below_producer_epoch=pair.epoch,
                v3_and_below_topics=[Topic(name=t, partitions=each) for t, each in topics.items()],
            )
            answer = self.connection.call(request, version)
            return rows_of(answer.results_by_topic_v3_and_below)

        self._note(f"add {name} v{version} {self._shown(pair)} {topics}", ask)

    def ask_as_broker(self, version: int, *additions: Addition) -> None:
        def ask() -> tuple[Iterable[int], Any]:
            request = m.AddPartitionsToTxnRequest(transactions=list(additions))
            answer = self.connection.call(request, version)
            found = {
                each.transactional_id: rows_of(each.topic_results)
                for each in answer.results_by_transaction
            }
            codes = [code for each, _ in found.values() for code in each]
            return codes, (answer.error_code, {name: rows for name, (_, rows) in found.items()})

        names = [(each.transactional_id, each.verify_only, each.topics) for each in additions]
        self._note(f"as broker v{version} {names}", ask)

    def add_group(self, name: str, pair: Pair, group: str, version: int = 4) -> None:
        def ask() -> tuple[Iterable[int], Any]:
            request = m.AddOffsetsToTxnRequest(
                transactional_id=name,
                producer_id=pair.producer_id,
                producer_epoch=pair.epoch,
                group_id=group,
            )
            code = self.connection.call(request, version).error_code
            return [code], code

        self._note(f"add group {name} v{version} {self._shown(pair)} {group}", ask)

    def end(self, name: str, pair: Pair, version: int = 5, *, commit: bool = True) -> Pair:
        """The pair for the next transaction."""
        found = pair

        def ask() -> tuple[Iterable[int], Any]:
            nonlocal found
            request = m.EndTxnRequest(
                transactional_id=name,
                producer_id=pair.producer_id,
                producer_epoch=pair.epoch,
                committed=commit,
            )
            answer = self.connection.call(request, version)
            given = Pair(answer.producer_id, answer.producer_epoch)
            found = given if given.producer_id >= 0 else pair
            return [answer.error_code], (answer.error_code, self._shown(given))

        self._note(f"end {name} v{version} {self._shown(pair)} {commit}", ask)
        return found

    def describe(self, *names: str, is_timing_out: bool = False) -> None:
        """Once no transaction of them waits for markers, or for its timeout."""
        waits = ("Prepare", "Ongoing") if is_timing_out else ("Prepare",)

        def ask() -> tuple[Iterable[int], Any]:
            request = m.DescribeTransactionsRequest(transactional_ids=list(names))
            rows = self.connection.call(request, 0).transaction_states
            is_busy = any(row.transaction_state.startswith(waits) for row in rows)
            return TRY_AGAIN if is_busy else [row.error_code for row in rows], [
                (
                    row.transactional_id,
                    row.error_code,
                    row.transaction_state,
                    row.transaction_timeout_ms,
                    row.transaction_start_time_ms > 0,
                    row.error_code or self._shown(Pair(row.producer_id, row.producer_epoch)),
                    sorted((topic.topic, sorted(topic.partitions)) for topic in row.topics),
                )
                for row in rows
            ]

        self._note(f"describe {names}", ask)

    def list(self, version: int, **filters: Any) -> None:
        def ask() -> tuple[Iterable[int], Any]:
            answer = self.connection.call(m.ListTransactionsRequest(**filters), version)
            return [answer.error_code], (
                answer.error_code,
                sorted(answer.unknown_state_filters),
                sorted(
                    (row.transactional_id, row.transaction_state, self._ids[row.producer_id])
                    for row in answer.transaction_states
                ),
            )

        self._note(f"list v{version} {filters}", ask)

    def produce(
        self,
        name: str | None,
        pair: Pair,
        sequence: int,
        version: int,
        *,
        partition: int = 0,
        plain: bool = False,
    ) -> None:
        """plain: the batch is of no transaction."""
        stamp = ProducerStamp(pair.producer_id, pair.epoch, sequence, transactional=not plain)
        kind = m.ProduceRequest

        def ask() -> tuple[Iterable[int], Any]:
            batch = build_batch([Record(None, b"v", 1_700_000_000_000)], producer=stamp)
            row = kind.PartitionProduceData(index=partition, records=bytes(batch))
            topic = kind.TopicProduceData(name="t", topic_id=self.topic_id, partition_data=[row])
            request = kind(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[topic])
            answer = self.connection.call(request, version).responses[0].partition_responses[0]
            return [answer.error_code], (answer.error_code, answer.base_offset)

        what = f"produce {name} v{version} {self._shown(pair)} t-{partition} {sequence} {plain}"
        self._note(what, ask)

    def ends(self) -> None:
        """Where t-0 ends for readers of all records, and for those of committed ones."""
        kind = m.ListOffsetsRequest

        def ask() -> tuple[Iterable[int], Any]:
            offsets = []
            for isolation in (0, 1):
                row = kind.ListOffsetsPartition(partition_index=0, timestamp=-1)
                topic = kind.ListOffsetsTopic(name="t", partitions=[row])
                request = kind(replica_id=-1, isolation_level=isolation, topics=[topic])
                answer = self.connection.call(request, 6)
                offsets.append(answer.topics[0].partitions[0].offset)
            return [], offsets

        self._note("ends", ask)


def rows_of(topics: Iterable[Any]) -> tuple[list[int], list[tuple[str, int, int]]]:
    """The errors of AddPartitionsToTxn, and its rows."""
    rows = sorted(
        (topic.name, row.partition_index, row.partition_error_code)
        for topic in topics
        for row in topic.results_by_partition
    )
    return [code for *_, code in rows], rows


def asked(name: str, pair: Pair, *indexes: int, topic: str = "t", verify: bool = False) -> Addition:
    """One transaction of a broker's AddPartitionsToTxn."""
    return Addition(
        transactional_id=name,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        verify_only=verify,
        topics=[Topic(name=topic, partitions=list(indexes))],
    )


def initialising(client: Client) -> None:
    for version in range(6):
        name = client.new_id("init")
        client.init(name, version)
        second = client.init(name, version)
        if version >= 3:
            for pair in (
                second,  # continues
                second,  # repeats that
                second.with_epoch(0),
                Pair(UNKNOWN_ID, 1),
                Pair(-1, 1),
                Pair(UNKNOWN_ID, -1),
            ):
                client.init(name, version, pair=pair)
        for timeout_ms in (0, -1, 900_001, 900_000):
            client.init(client.new_id("timeout"), version, timeout_ms=timeout_ms)
        client.init("", version)
        client.init(None, version)
        name = client.new_id("in-progress")
        first = client.init(name, version)
        client.add(name, first, {"t": [0]})
        client.init(name, version)
        client.describe(name)
        client.add(name, first, {"t": [0]})
        client.end(name, first, min(version, 4))


def adding(client: Client) -> None:
    for version in range(4):
        name = client.new_id("add")
        old = client.init(name)
        pair = client.init(name)
        client.add(name, old, {"t": [0]}, version)
        client.add(name, Pair(UNKNOWN_ID, 0), {"t": [0]}, version)
        client.add("unknown", pair, {"t": [0]}, version)
        client.add("", pair, {"t": [0]}, version)
        client.add(name, pair, {"t": [0, 9], "unknown": [0]}, version)
        client.add(name, pair, {"__consumer_offsets": [0], "t": [0]}, version)
        for topics in ({}, {"t": [0, 1]}, {"t": [0]}):
            client.add(name, pair, topics, version)
            client.describe(name)
        client.end(name, pair, 4, commit=False)
        client.describe(name)
    for version in range(5):
        name = client.new_id("group")
        old = client.init(name)
        pair = client.init(name)
        client.add_group(name, old, "g", version)
        client.add_group(name, Pair(UNKNOWN_ID, 0), "g", version)
        client.add_group("unknown", pair, "g", version)
        client.add_group("", pair, "g", version)
        client.add_group(name, pair, "g", version)
        client.describe(name)
        client.end(name, pair, 4)
        client.describe(name)


def asking_as_broker(client: Client) -> None:
    for version in (4, 5):
        one, other = client.new_id("one"), client.new_id("other")
        mine, others = client.init(one), client.init(other)
        client.ask_as_broker(
            version,
            asked(one, mine, 0, verify=True),
            asked(other, others, 0, 1),
            asked("unknown", mine, 0, verify=True),
            asked("another", mine, 1),
        )
        client.ask_as_broker(version, asked(other, others, 0, 1, 2, verify=True))
        client.ask_as_broker(version, asked(one, mine.with_epoch(7), 0))
        client.ask_as_broker(version, asked(other, others.with_epoch(7), 0, verify=True))
        client.ask_as_broker(version, asked(one, Pair(UNKNOWN_ID, 0), 0, verify=True))
        client.ask_as_broker(version, asked(other, others, 0, 77))
        client.ask_as_broker(version, asked("", others, 0), asked("", others, 0, verify=True))
        client.ask_as_broker(version, asked(one, mine, 0, topic="__consumer_offsets"))
        client.describe(one, other)
        client.end(one, mine)
        following = client.end(other, others, commit=False)
        client.describe(one, other)
        client.ask_as_broker(version, asked(other, others, 0, verify=True))
        client.ask_as_broker(version, asked(other, following, 0, verify=True))


def ending(client: Client) -> None:
    for version, first, second, later in itertools.product(
        range(6), (None, True, False), (True, False), (False, True)
    ):
        name = client.new_id("end")
        pair = following = client.init(name)
        if first is not None:
            client.add(name, pair, {"t": [0]})
            following = client.end(name, pair, version, commit=first)
            client.describe(name)
        client.end(name, following if later else pair, version, commit=second)
        client.describe(name)
    for version in range(6):
        name = client.new_id("wrong")
        pair = client.init(name)
        client.add(name, pair, {"t": [0]})
        client.end(name, pair.with_epoch(5), version)
        client.end(name, Pair(UNKNOWN_ID, 0), version)
        client.end("", pair, version)
        client.end("unknown", pair, version)
        client.end(name, pair, version)
        fresh = client.init(name)
        for each, commit in itertools.product((pair, fresh), (True, False)):
            client.end(name, each, version, commit=commit)
            client.describe(name)


def producing(client: Client) -> None:
    for version in (8, 11, 12, 13):
        is_tv2 = version >= 12
        name = client.new_id("produce")
        pair = client.init(name)
        client.produce(name, pair, 0, version)
        client.describe(name)
        client.add(name, pair, {"t": [0]})
        for sequence in (0, 1, 1, 3):
            client.produce(name, pair, sequence, version)
        client.produce(None, pair, 2, version)
        client.produce(name, pair, 2, version, plain=True)
        client.produce(name, pair, 0, version, partition=1)
        client.produce(name, pair, 5, version, partition=2)
        client.ends()
        following = client.end(name, pair, 5 if is_tv2 else 4)
        client.describe(name)
        client.ends()
        client.produce(name, pair, 2, version)
        client.add(name, following, {"t": [0]})
        client.produce(name, following, 0 if is_tv2 else 2, version)
        client.ends()
        client.init(name)
        client.produce(name, following, 4, version)
        client.ends()
        client.describe(name)
        client.produce("unknown", Pair(UNKNOWN_ID, 0), 0, version)


def timing_out(client: Client) -> None:
    for version, commit in itertools.product((2, 4, 5), (True, False)):
        name = client.new_id("timeout")
        old = client.init(name, timeout_ms=500)
        new = old.with_epoch(1)
        produce_version = 12 if version == 5 else 11
        if version < 5:
            client.add(name, old, {"t": [0]})
        client.produce(name, old, 0, produce_version)
        client.describe(name, is_timing_out=True)
        client.ends()
        client.produce(name, old, 1, produce_version)
        client.add(name, old, {"t": [0]})
        client.end(name, old, version, commit=commit)
        client.describe(name)
        client.init(name, pair=old)
        client.init(name, pair=new)
        client.init(name)


def listing(client: Client) -> None:
    for version in range(3):
        client.list(version)
        for states in (["Ongoing"], ["Foo", "Empty"], ["Foo"], ["Dead", "PrepareEpochFence"]):
            client.list(version, state_filters=states)
    client.list(1, duration_filter=0)
    client.list(2, duration_filter=10**9)
    for pattern in ("end-.*", "end", "(", ""):
        client.list(2, transactional_id_pattern=pattern)
    client.describe("", "unknown")


def outcomes(port: int) -> list[Step]:
    client = Client(port)
    with client.connection:
        for part in (
            initialising,
            adding,
            asking_as_broker,
            ending,
            producing,
            timing_out,
            listing,
        ):
            part(client)
    return client.steps


def ours(directory: Path) -> list[Step]:
    async def main() -> list[Step]:
        config = broker_config(
            {
                **CONFIG,
                "logfleet.admin.listener": "127.0.0.1:0",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(directory),
            }
        )
        config = msgspec.structs.replace(config, logfleet_feature_level_max=TRANSACTIONS)
        async with Broker(config) as broker:
            (listener,) = broker.opened.listeners.all
            return await asyncio.to_thread(outcomes, listener.port)

    return asyncio.run(main())


def differences(mine: list[Step], theirs: list[Step]) -> Iterator[str]:
    for (what, outcome), (same, expected) in zip(mine, theirs, strict=True):
        if (what, outcome) != (same, expected):
            yield f"{what}: {outcome}, Kafka {same}: {expected}"


def test_transactional_producers_are_answered_as_by_kafka(tmp_path: Path) -> None:
    mine = ours(tmp_path / "ours")
    with KafkaBroker(tmp_path / "kafka", **CONFIG) as kafka:
        theirs = outcomes(kafka.port)
    assert list(differences(mine, theirs)) == []
    assert len(mine) > 500, "so many steps were taken"
