"""One round: a fleet under transactional producers and copiers, faults, and then the verdict."""

import asyncio
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from logfleet.client.cluster import Client
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition, list_offsets
from logfleet.client.transactions.admin import Transactions
from logfleet.client.transactions.hanging import open_transactions

from e2e.harness.kafka import tool_command
from e2e.harness.program import Program
from e2e.load.fleet.faults import SEEN_S, STEADY_S, disturb
from e2e.load.fleet.fleet import PARTITIONS, TOPIC, FailoverFleet
from e2e.load.transactions.checker import (
    Outcome,
    Transaction,
    Verdict,
    judge,
    miscopies,
    misreadings,
    transactions_of,
)
from e2e.load.transactions.faults import TRANSACTION_FAULTS
from e2e.load.transactions.readers import LiveReader, committed_offsets, read_committed
from e2e.load.verdict import Fault

CONFIG = {"transaction.state.log.num.partitions": "6"}
COPIERS = {"copier-1": 1, "copier-2": 2}
"""Ours: topic, group and transactional id by the version of the protocol."""
JAVA_COPIER = "java-copier"
COPIES = (*COPIERS, JAVA_COPIER)
JAVA_MAIN = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIED_WITHIN_S = 180.0
ENDED_WITHIN_S = 60.0
UNDECIDED = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Kind(NamedTuple):
    """How many transactional ids of a client there are, and how many transactions each makes."""

    ids: int
    per_s: float


KINDS: Mapping[str, Kind] = {
    "confluent": Kind(12, 12),
    "java": Kind(12, 12),
    "ours-1": Kind(12, 12),
    "ours-2": Kind(12, 12),
}
FEW: Mapping[str, Kind] = {name: Kind(3, 8) for name in KINDS}
"""For a short round beside other tests."""


class Outcomes(NamedTuple):
    """What a round found. transactions: of all producers, but for the copiers'."""

    transactions: list[Transaction]
    verdict: Verdict
    faults: list[Fault]
    copied: Mapping[str, int]

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome is outcome for each in self.transactions)


def run_round(
    directory: Path,
    seed: int,
    faults: Sequence[str],
    kinds: Mapping[str, Kind] = KINDS,
    *,
    seen_s: float = SEEN_S,
) -> Outcomes:
    """faults: names of TRANSACTION_FAULTS. seen_s: how long each is watched before it is undone.

    Raises AssertionError if the fleet does not heal.
    """
    fleet = FailoverFleet(directory, config=CONFIG)
    try:
        return _Round(fleet, directory, seed, kinds).run(faults, seen_s)
    finally:
        fleet.close()


class _Round:
    def __init__(
        self, fleet: FailoverFleet, directory: Path, seed: int, kinds: Mapping[str, Kind]
    ) -> None:
        self._fleet = fleet
        self._dice = random.Random(seed)
        own = fleet.rig.own
        for copy in COPIES:
            fleet.create(copy)
        module = [sys.executable, "-m", "e2e.load.transactions.producers"]
        self._producers = []
        for kind, (ids, per_s) in kinds.items():
            words = [kind, fleet.bootstrap, TOPIC, PARTITIONS, ids, per_s, seed]
            command = [*module, *map(str, words)]
            self._producers.append(own(Program(f"producer-{kind}", command, directory / kind)))
        copier = [sys.executable, "-m", "e2e.load.transactions.copier"]
        self._copiers = []
        for name, version in COPIERS.items():
            words = [fleet.bootstrap, TOPIC, name, name, version, seed]
            command = [*copier, *map(str, words)]
            self._copiers.append(own(Program(name, command, directory / name)))
        java = tool_command(JAVA_MAIN, _java_arguments(fleet.bootstrap))
        self._java_copier = own(Program(JAVA_COPIER, java, directory / JAVA_COPIER))

    def run(self, kinds: Sequence[str], seen_s: float) -> Outcomes:
        self._fleet.until_whole()
        reader = LiveReader(self._fleet.bootstrap, TOPIC, PARTITIONS)
        reader.start()
        for program in (*self._producers, *self._copiers):
            program.launch()
        self._fleet.until("committing", self._all_commit)
        time.sleep(STEADY_S)
        faults = []
        for kind in kinds:
            if not self._java_copier.running:
                self._java_copier.launch()
            inject = TRANSACTION_FAULTS[kind]
            faults.append(disturb(self._fleet, self._dice, kind, inject, seen_s=seen_s))
        for program in self._producers:
            program.terminate(ENDED_WITHIN_S)
        bootstrap = self._fleet.bootstrap
        hanging = self._hanging()
        logs = read_committed(bootstrap, TOPIC, PARTITIONS)
        self._until_copied({n: max(log, default=-1) + 1 for n, log in logs.items()})
        reading = reader.stop()
        transactions = self._transactions()
        miscopied, copied = [], {}
        for copy in COPIES:
            offsets = committed_offsets(bootstrap, copy, TOPIC, PARTITIONS)
            found = read_committed(bootstrap, copy, PARTITIONS)
            miscopied += [f"{copy}: {each}" for each in miscopies(logs, found, offsets)]
            copied[copy] = sum(map(len, found.values()))
        verdict = judge(transactions, logs)._replace(
            misread=misreadings(reading, logs), miscopied=miscopied, hanging=hanging
        )
        return Outcomes(transactions, verdict, faults, copied)

    def _transactions(self) -> list[Transaction]:
        texts = [program.log.read_text(errors="replace") for program in self._producers]
        return [each for text in texts for each in transactions_of(text)]

    def _all_commit(self) -> bool:
        """Each producer has committed; also what they were until then is part of the history."""
        return all(
            any(
                each.outcome is Outcome.COMMITTED
                for each in transactions_of(program.log.read_text(errors="replace"))
            )
            for program in self._producers
        )

    def _until_copied(self, ends: Mapping[int, int]) -> None:
        """All copiers have copied all that is committed; then they are stopped."""

        def are_copied(name: str) -> bool:
            if name == JAVA_COPIER and not self._java_copier.running:
                self._java_copier.launch()
            offsets = committed_offsets(self._fleet.bootstrap, name, TOPIC, PARTITIONS)
            return all(offsets[n] >= end for n, end in ends.items())

        for program in (*self._copiers, self._java_copier):
            name = program.name
            self._fleet.until("copied", lambda name=name: are_copied(name), COPIED_WITHIN_S)  # type: ignore[misc]
            if program.running:
                program.terminate()

    def _hanging(self) -> list[str]:
        """What of the producers is open or undecided, once they have ended."""
        give_up_s = time.monotonic() + ENDED_WITHIN_S
        while True:
            found = asyncio.run(_open_or_undecided(self._fleet.bootstrap))
            if not found or time.monotonic() > give_up_s:
                return found
            time.sleep(0.5)


def _java_arguments(bootstrap: str) -> list[str]:
    given = {
        "broker-list": bootstrap,
        "input-topic": TOPIC,
        "input-partition": "-1",
        "output-topic": JAVA_COPIER,
        "consumer-group": JAVA_COPIER,
        "transactional-id": JAVA_COPIER,
        "transaction-size": "200",
    }
    words = [word for key, value in given.items() for word in (f"--{key}", value)]
    return [*words, "--group-mode", "--use-group-metadata", "--enable-random-aborts"]


async def _open_or_undecided(bootstrap: str) -> list[str]:
    partitions = [TopicPartition(TOPIC, n) for n in range(PARTITIONS)]
    async with Client(bootstrap) as client:
        listed = [
            f"{each.transactional_id} is in {each.state}"
            for each in await Transactions(client).list(states=UNDECIDED)
            if each.transactional_id not in COPIES
        ]
        opened = [
            f"producer {each.producer_id} is open in {each.partition} from {each.start_offset} on"
            for each in await open_transactions(client, partitions)
        ]
        wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
        stable = await list_offsets(client, wanted, isolation=IsolationLevel.READ_COMMITTED)
        high = await list_offsets(client, wanted)
        ends = [
            f"{key} is stable up to {stable[key].offset} of {high[key].offset}"
            for key in partitions
            if stable[key].offset != high[key].offset
        ]
    return [*listed, *opened, *ends]
