"""Copies a topic into another one, each batch in a transaction with its offsets (KIP-447).

`python -m e2e.load.transactions.copier BOOTSTRAP SOURCE COPY NAME VERSION SEED` until SIGTERM. It
does what Kafka's TransactionalMessageCopier does with `--group-mode --enable-random-aborts`, on our
client: a member of the group NAME reads committed records and writes each to the partition of the
same number. VERSION is of the protocol. After an abort it reads again from the committed offsets.
librdkafka 2.16 cannot be a copier here: it waits for ever for a coordinator that died between
AddOffsetsToTxn and TxnOffsetCommit (its issue 5456).
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from typing import Final

from logfleet.client.cluster import Client
from logfleet.client.consumer import GroupConsumer
from logfleet.client.errors import AbortRequired, ClientError, ProducerFailed
from logfleet.client.fetcher import Fetched
from logfleet.client.offsets import IsolationLevel, OffsetSpec
from logfleet.client.transactions.calls import Member
from logfleet.client.transactions.producer import TransactionalProducer

from e2e.load.producers import Stop
from e2e.load.transactions.checker import Outcome
from e2e.load.transactions.our_calls import repeatedly

ABORTED_SHARE: Final = 1 / 10
TIMEOUT_MS: Final = 30_000


class Copier:
    """One member of the group, and the producer of its transactions."""

    def __init__(self, client: Client, source: str, copy: str, name: str, seed: str) -> None:
        self._client, self._copy, self._name = client, copy, name
        self._dice = random.Random(f"{seed} {name}")
        self._consumer = GroupConsumer(
            client,
            name,
            [source],
            reset=OffsetSpec.EARLIEST,
            isolation=IsolationLevel.READ_COMMITTED,
        )

    async def run(self, stop: Stop) -> None:
        """Copy until SIGTERM; a producer that failed is replaced."""
        async with self._consumer:
            while not stop.asked:
                async with TransactionalProducer(
                    self._client, self._name, timeout_ms=TIMEOUT_MS, linger_ms=0
                ) as producer:
                    await repeatedly(producer.init)
                    await repeatedly(self._rewind)
                    await self._copy_until_failed(producer, stop)

    async def _copy_until_failed(self, producer: TransactionalProducer, stop: Stop) -> None:
        try:
            while not stop.asked:
                await self._step(producer)
        except ClientError as error:
            print(f"replaced after {error!r}", flush=True)

    async def _step(self, producer: TransactionalProducer) -> None:
        """Copy what is there in one transaction. Raises ClientError if the producer has failed."""
        fetched = await self._consumer.poll(200)
        if not fetched:
            return
        await repeatedly(producer.begin)
        outcome = await self._transaction(producer, fetched)
        if outcome is Outcome.ABORTED:
            await repeatedly(producer.abort)
            await repeatedly(self._rewind)
        print(outcome, len(fetched), flush=True)

    async def _transaction(
        self, producer: TransactionalProducer, fetched: Sequence[Fetched]
    ) -> Outcome:
        """Whether it is committed, or to be aborted. Raises ClientError if nobody knows."""
        is_commit_sent = False
        try:
            for each in fetched:
                for record in each.records():
                    index = each.partition.partition
                    await producer.send(self._copy, record.value, partition=index)
            offsets = {each.partition: each.end_offset for each in fetched}
            member = Member(self._consumer.member_id, self._consumer.generation)
            await producer.add_offsets(self._name, offsets, member)
            if self._dice.random() < ABORTED_SHARE:
                return Outcome.ABORTED
            is_commit_sent = True
            await repeatedly(producer.commit)
        except ProducerFailed:
            raise
        except ClientError as error:
            if is_commit_sent and not isinstance(error, AbortRequired):
                raise
            print(f"aborting after {error!r}", flush=True)
            return Outcome.ABORTED
        return Outcome.COMMITTED

    async def _rewind(self) -> None:
        """Read again from the committed offsets, in the partitions that are assigned now."""
        assigned = self._consumer.assignment()
        found = await self._consumer.groups.committed(self._name, assigned) if assigned else {}
        for key in assigned:
            self._consumer.fetcher.seek(key, found[key].offset if key in found else 0)


async def copy(
    bootstrap: str, source: str, target: str, name: str, version: int, seed: str
) -> None:
    """Copy until SIGTERM. version: of the protocol."""
    stop = Stop()
    async with Client(bootstrap) as client:
        if version == 1:
            client.finalized.learn(2**62, {"transaction.version": 1})
        await Copier(client, source, target, name, seed).run(stop)


def main() -> None:
    bootstrap, source, target, name, version, seed = sys.argv[1:]
    asyncio.run(copy(bootstrap, source, target, name, int(version), seed))


if __name__ == "__main__":
    main()
