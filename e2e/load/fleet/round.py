"""One round: the fleet under three clients' load and a group that reads it, so many faults, then everything is read and compared."""

import itertools
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from e2e.harness.kafka import dump_log, tool_command
from e2e.harness.program import Program
from e2e.load.fleet.faults import FAULTS, OF_DISKS
from e2e.load.fleet.fleet import PARTITIONS, PATIENCE_S, TOPIC, FailoverFleet
from e2e.load.fleet.replicas import batches_of, differences
from e2e.load.verdict import (
    Fault,
    Gap,
    History,
    Verdict,
    gaps,
    judge,
    read_history,
    read_java_history,
)

CLIENTS = {"confluent": 400, "aiokafka": 400, "probe": 120}
"""Records a second. The probe gives up on a silent broker after a second; the others have their default timeouts."""
JAVA_RATE = 400
JAVA_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
JAVA_CONFIG = "enable.idempotence=true\nretries=2147483647\nlinger.ms=5\n"
KEYS = 60
"""Its records have keys, so that every partition gets some all the time; without, it fills one after the other."""
GROUP = "readers"
STEADY_S = 3.0
"""Of load before the first fault and after each is healed."""
SEEN_S = 5.0
"""How long a fault is watched before it is undone."""


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


class Reader(threading.Thread):
    """A member of a group that commits what it has read once a second; says so if a commit is found to have gone back."""

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{GROUP}-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self.confirmed: dict[int, int] = {}
        self.went_back: list[str] = []
        self._ended = threading.Event()

    def run(self) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe([self._topic])
        due_s = time.monotonic() + 1
        while not self._ended.is_set():
            consumer.consume(500, 0.2)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + 1
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        """What is committed is read back; a coordinator that moves is no fault, an older offset is."""
        try:
            for each in consumer.commit(asynchronous=False) or []:
                if each.error is None:
                    self.confirmed[each.partition] = each.offset
            asked = [TopicPartition(self._topic, index) for index in self.confirmed]
            for found in consumer.committed(asked, timeout=10):
                if found.error is None and found.offset < self.confirmed[found.partition]:
                    self.went_back.append(
                        f"{found.partition}: {self.confirmed[found.partition]} -> {found.offset}"
                    )
        except KafkaException:
            return

    def stop(self) -> None:
        self._ended.set()
        self.join(PATIENCE_S)


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
        python = str(Path(__file__).parents[2] / ".venv/bin/python")
        self._producers: dict[str, Program] = {}
        for kind, rate in CLIENTS.items():
            module = [python, "-m", "e2e.load.producers"]
            arguments = [kind, fleet.bootstrap, TOPIC, str(PARTITIONS), str(rate)]
            self._producers[kind] = fleet.rig.program(f"producer-{kind}", [*module, *arguments])
        config = directory / "producer.properties"
        config.write_text(JAVA_CONFIG)
        java = ["--bootstrap-server", fleet.bootstrap, "--topic", TOPIC, "--acks", "-1"]
        java += ["--throughput", str(JAVA_RATE), "--value-prefix", "0"]
        java += ["--repeating-keys", str(KEYS)]
        java += ["--command-config", str(config)]
        self._producers["java"] = fleet.rig.program(
            "producer-java", tool_command(JAVA_PRODUCER, java)
        )
        self._reader = Reader(fleet.bootstrap)

    def run(self, kinds: Sequence[str]) -> Outcome:
        self._fleet.until_whole()
        for producer in self._producers.values():
            producer.launch()
        self._reader.start()
        self._fleet.until("acknowledging", self._all_acknowledge)
        time.sleep(STEADY_S)
        faults = [self._disturb(kind) for kind in kinds]
        for producer in self._producers.values():
            producer.terminate()
        self._reader.stop()
        histories = {name: self._history(name) for name in self._producers}
        logs = read_all(self._fleet.bootstrap)
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
        return all(self._history(name).acknowledged for name in self._producers)

    def _history(self, name: str) -> History:
        text = self._producers[name].log.read_text()
        if name == "java":
            return read_java_history(text, wall_to_monotonic_s=time.monotonic() - time.time())
        return read_history(name, text)

    def _disturb(self, kind: str) -> Fault:
        """Done when the fleet is whole again and has served for a while."""
        injected = FAULTS[kind](self._fleet, self._dice)
        time.sleep(SEEN_S)
        injected.heal()
        self._fleet.until_whole()
        time.sleep(STEADY_S)
        to_s = time.monotonic()
        print(
            f"  {kind} of {injected.victim}: whole after {to_s - injected.at_s - STEADY_S:.1f} s",
            flush=True,
        )
        return Fault(kind, injected.victim, injected.at_s, to_s, injected.led)


def read_all(
    bootstrap: str, topic: str = TOPIC, count: int = PARTITIONS
) -> dict[int, dict[int, str]]:
    """Every partition from its beginning to its end: value by offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "verdict", "enable.partition.eof": True}
    )
    partitions = [TopicPartition(topic, index, 0) for index in range(count)]
    ends = {
        each.partition: consumer.get_watermark_offsets(each, timeout=PATIENCE_S)[1]
        for each in partitions
    }
    consumer.assign(partitions)
    logs: dict[int, dict[int, str]] = {index: {} for index in ends}
    reached = dict.fromkeys(ends, 0)
    give_up_s = time.monotonic() + 4 * PATIENCE_S
    while any(reached[index] < end for index, end in ends.items()):
        assert time.monotonic() < give_up_s, f"read up to {reached} of {ends}"
        for message in consumer.consume(2000, 0.5):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None and partition is not None:
                assert offset is not None
                assert value is not None
                logs[partition][offset] = value.decode()
                reached[partition] = offset + 1
    consumer.close()
    return logs
