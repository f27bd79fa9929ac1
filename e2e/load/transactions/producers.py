"""The transactional producers of the load, each process with several transactional ids.

`python -m e2e.load.transactions.producers KIND BOOTSTRAP TOPIC PARTITIONS IDS RATE SEED`

KIND: `confluent` (librdkafka, the first protocol), `java` (Kafka's client, the second one), `ours-1`
and `ours-2` (our client, either protocol). RATE: transactions a second of each id. A transaction has
one to six records, on partitions of chance, and one in eight is aborted. Each is reported on standard
output as `e2e.load.transactions.checker` reads it. At SIGTERM each id ends its transaction first.
"""

import asyncio
import contextlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Producer
from logfleet.client.cluster import Client
from logfleet.client.errors import AbortRequired, ClientError, ProducerFailed
from logfleet.client.transactions.producer import TransactionalProducer

from e2e.load.producers import Stop
from e2e.load.transactions.checker import Outcome, Transaction, Value, report_line
from e2e.load.transactions.confluent_calls import CALL_S, repeated, wants_abort
from e2e.load.transactions.java_producer import JavaProducer, java_clients
from e2e.load.transactions.our_calls import repeatedly

SIZES: Final = (1, 1, 2, 2, 3, 6)
ABORTED_SHARE: Final = 1 / 8
TIMEOUT_MS: Final = 30_000
POLL_S: Final = 0.01


class Work(NamedTuple):
    """What one transactional id does."""

    name: str
    bootstrap: str
    topic: str
    partitions: int
    rate: float
    dice: random.Random
    stop: Stop


class Plan(NamedTuple):
    """A transaction that is to be made. records: partition and value of each."""

    number: int
    records: list[tuple[int, str]]
    is_aborted: bool
    began_s: float


class Open:
    """What becomes of one transaction; its producer reports it once."""

    def __init__(self, work: Work, plan: Plan) -> None:
        self._work, self._plan = work, plan
        self.is_commit_sent = False

    def report(self, outcome: Outcome) -> None:
        now_s = time.monotonic()
        each = Transaction(
            self._work.name,
            self._plan.number,
            outcome,
            len(self._plan.records),
            now_s,
            now_s - self._plan.began_s,
        )
        print(report_line(each), flush=True)

    def given_up(self, reason: object) -> None:
        """Its producer has failed: if no commit was sent, it is never committed."""
        print(f"{self._work.name} gave up {self._plan.number}: {reason}".replace("\n", " "))
        self.report(Outcome.UNKNOWN if self.is_commit_sent else Outcome.ABORTED)


def plans(work: Work) -> Iterator[Plan | None]:
    """The next transaction, or None until it is due; ends at SIGTERM."""
    began_s = time.monotonic()
    number = 0
    while not work.stop.asked:
        now_s = time.monotonic()
        if number >= (now_s - began_s) * work.rate:
            yield None
            continue
        size = work.dice.choice(SIZES)
        records = [
            (work.dice.randrange(work.partitions), str(Value(work.name, number, place, size)))
            for place in range(size)
        ]
        yield Plan(number, records, work.dice.random() < ABORTED_SHARE, now_s)
        number += 1


def confluent(work: Work) -> None:
    """Transactions of librdkafka; a producer that failed is replaced by the next of its id."""
    config = {
        "bootstrap.servers": work.bootstrap,
        "transactional.id": work.name,
        "transaction.timeout.ms": TIMEOUT_MS,
        "linger.ms": 0,
        "log_level": 3,
    }
    producer: Producer | None = None
    for plan in plans(work):
        if plan is None:
            time.sleep(POLL_S)
            continue
        found = Open(work, plan)
        try:
            if producer is None:
                producer = Producer(config)
                repeated(producer.init_transactions)
            confluent_transaction(producer, work, plan, found)
        except KafkaException as error:
            found.given_up(error)
            producer = None


def confluent_transaction(producer: Producer, work: Work, plan: Plan, found: Open) -> None:
    """Raises KafkaException if the producer has failed."""
    producer.begin_transaction()
    try:
        for partition, value in plan.records:
            producer.produce(work.topic, value, partition=partition)
        if not plan.is_aborted:
            found.is_commit_sent = True
            repeated(producer.commit_transaction)
            found.report(Outcome.COMMITTED)
            return
        producer.flush(0 if work.dice.random() < 0.5 else CALL_S)
    except KafkaException as error:
        if not wants_abort(error):
            raise
    repeated(producer.abort_transaction)
    found.report(Outcome.ABORTED)


def java(work: Work) -> None:
    """Transactions of Kafka's own client."""
    producer: JavaProducer | None = None
    for plan in plans(work):
        if plan is None:
            time.sleep(POLL_S)
            continue
        found = Open(work, plan)
        try:
            if producer is None:
                producer = JavaProducer(work.bootstrap, work.name, TIMEOUT_MS)
                producer.init()
            producer.begin()
            producer.send(work.topic, plan.records)
            found.is_commit_sent = not plan.is_aborted
            is_committed = not plan.is_aborted and producer.commit()
            if not is_committed:
                producer.abort()
            found.report(Outcome.COMMITTED if is_committed else Outcome.ABORTED)
        except JavaProducer.Failed as error:
            found.given_up(error)
            if producer is not None:
                producer.close()
            producer = None


async def ours(work: Work, *, version: int) -> None:
    """Transactions of our client. version: of the protocol."""
    async with Client(work.bootstrap) as client:
        if version == 1:
            client.finalized.learn(2**62, {"transaction.version": 1})
        producer: TransactionalProducer | None = None
        async with contextlib.AsyncExitStack() as stack:
            for plan in plans(work):
                if plan is None:
                    await asyncio.sleep(POLL_S)
                    continue
                found = Open(work, plan)
                try:
                    if producer is None:
                        producer = TransactionalProducer(
                            client, work.name, timeout_ms=TIMEOUT_MS, linger_ms=0
                        )
                        await stack.enter_async_context(producer)
                        await repeatedly(producer.init)
                    await our_transaction(producer, work, plan, found)
                except ClientError as error:
                    found.given_up(repr(error))
                    await stack.aclose()
                    producer = None


async def our_transaction(
    producer: TransactionalProducer, work: Work, plan: Plan, found: Open
) -> None:
    """Raises ProducerFailed and what else ends the producer."""
    await repeatedly(producer.begin)
    try:
        for partition, value in plan.records:
            await producer.send(work.topic, value.encode(), partition=partition)
        if not plan.is_aborted:
            found.is_commit_sent = True
            await repeatedly(producer.commit)
            found.report(Outcome.COMMITTED)
            return
    except ProducerFailed:
        raise
    except ClientError as error:
        if found.is_commit_sent and not isinstance(error, AbortRequired):
            raise
    await repeatedly(producer.abort)
    found.report(Outcome.ABORTED)


async def _all_ours(works: list[Work], version: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(ours(work, version=version))


def _in_threads(works: list[Work], run: Callable[[Work], None]) -> None:
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    kind, bootstrap, topic, partitions, ids, rate, seed = sys.argv[1:]
    stop = Stop()
    works = [
        Work(
            f"{kind}-{n}",
            bootstrap,
            topic,
            int(partitions),
            float(rate),
            random.Random(f"{seed} {kind} {n}"),
            stop,
        )
        for n in range(int(ids))
    ]
    with contextlib.suppress(BrokenPipeError):
        if kind == "confluent":
            _in_threads(works, confluent)
        elif kind == "java":
            with java_clients():
                _in_threads(works, java)
        else:
            asyncio.run(_all_ours(works, int(kind.removeprefix("ours-"))))


if __name__ == "__main__":
    main()
