"""One round: the fleet under three clients' load and a group that reads it, so many faults, then everything is read and compared."""

import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from e2e.harness.kafka import dump_log, tool_command
from e2e.load.clients import JAVA, Producers, Reader, producer, read_all
from e2e.load.fleet.faults import FAULTS, OF_DISKS, STEADY_S, disturb
from e2e.load.fleet.fleet import PARTITIONS, TOPIC, FailoverFleet
from e2e.load.fleet.replicas import batches_of, differences
from e2e.load.verdict import Gap, Verdict, gaps, judge

CLIENTS = {"confluent": 400, "aiokafka": 400, "probe": 120}
"""Records a second. The probe gives up on a silent broker after a second; the others have their default timeouts."""
JAVA_RATE = 400
JAVA_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
JAVA_CONFIG = "enable.idempotence=true\nretries=2147483647\nlinger.ms=5\n"
KEYS = 60
"""Its records have keys, so that every partition gets some all the time; without, it fills one after the other."""


class Outcome(NamedTuple):
    """gaps: by client. commits_back: committed offsets that were older than one confirmed before. unlike: where replicas differ in what is committed."""

    acknowledged: int
    failed: list[str]
    verdict: Verdict
    commits_back: list[str]
    gaps: dict[str, list[Gap]]
    unlike: list[str]

    @property
    def is_clean(self) -> bool:
        return self.verdict.is_clean and not self.commits_back and not self.unlike


def run_round(directory: Path, seed: int, kinds: Sequence[str]) -> Outcome:
    """kinds: names of FAULTS, in this order. Raises AssertionError if the fleet does not heal."""
    fleet = FailoverFleet(directory, has_disks=not OF_DISKS.isdisjoint(kinds))
    try:
        return _Round(fleet, directory, random.Random(seed)).run(kinds)
    finally:
        fleet.close()


class _Round:
    def __init__(self, fleet: FailoverFleet, directory: Path, dice: random.Random) -> None:
        self._fleet = fleet
        self._dice = dice
        own = fleet.rig.own
        programs = {
            kind: own(producer(kind, fleet.bootstrap, TOPIC, PARTITIONS, rate, directory / kind))
            for kind, rate in CLIENTS.items()
        }
        config = directory / "producer.properties"
        config.write_text(JAVA_CONFIG)
        java = ["--bootstrap-server", fleet.bootstrap, "--topic", TOPIC, "--acks", "-1"]
        java += ["--throughput", str(JAVA_RATE), "--value-prefix", "0"]
        java += ["--repeating-keys", str(KEYS)]
        java += ["--command-config", str(config)]
        command = tool_command(JAVA_PRODUCER, java)
        self._producers = Producers({**programs, JAVA: fleet.rig.program("producer-java", command)})
        self._reader = Reader(fleet.bootstrap, TOPIC)

    def run(self, kinds: Sequence[str]) -> Outcome:
        self._fleet.until_whole()
        self._producers.launch()
        self._reader.start()
        self._fleet.until("acknowledging", self._all_acknowledge)
        time.sleep(STEADY_S)
        faults = [disturb(self._fleet, self._dice, kind, FAULTS[kind]) for kind in kinds]
        self._producers.stop()
        self._reader.stop()
        histories = self._producers.histories()
        logs = read_all(self._fleet.bootstrap, TOPIC, PARTITIONS)
        verdict = judge(histories.values(), logs)
        return Outcome(
            sum(len(each.acknowledged) for each in histories.values()),
            [reason for each in histories.values() for reason in each.failed],
            verdict,
            self._reader.went_back,
            {name: gaps(history, faults) for name, history in histories.items()},
            self._unlike(
                {f"{TOPIC}-{index}": max(log, default=-1) + 1 for index, log in logs.items()}
            ),
        )

    def _unlike(self, high_watermarks: dict[str, int]) -> list[str]:
        """Where Kafka's dump tool finds replicas to differ."""
        dumps = {}
        for broker in self._fleet.brokers:
            found = [path.glob(f"{TOPIC}-*/*.log") for path in self._fleet.log_dirs(broker)]
            segments = sorted(itertools.chain(*found))
            dumps[broker.name] = batches_of(dump_log(segments))
        return differences(dumps, high_watermarks)

    def _all_acknowledge(self) -> bool:
        return all(found.acknowledged for found in self._producers.histories().values())
