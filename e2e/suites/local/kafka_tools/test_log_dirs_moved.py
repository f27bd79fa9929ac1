"""Replicas move between a broker's own log directories by Kafka's tools, under a producer and a group, and past its death (KIP-113)."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.kafka import dump_log, run_tool
from e2e.harness.processes import Broker, Rig
from e2e.load.fleet.replicas import batches_of, differences
from e2e.load.running import fill, load

KIB, MIB = 1024, 1024 * 1024
SIZE = 6 * MIB
PATIENCE_S = 90
TOPIC = "moving"
PARTITIONS = 2
CONFIG = {"log.segment.bytes": str(MIB), "log.segment.delete.delay.ms": "1000"}


class Tools:
    """Kafka's, on the brokers of `bootstrap`. plan: log directories of each partition's replicas, by their brokers."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap, self._file = bootstrap, directory / "plan.json"

    def plan(self, replicas: Sequence[int], log_dirs: Sequence[Path]) -> None:
        rows = [
            {
                "topic": TOPIC,
                "partition": index,
                "replicas": list(replicas),
                "log_dirs": [str(path) for path in log_dirs],
            }
            for index in range(PARTITIONS)
        ]
        self._file.write_text(json.dumps({"version": 1, "partitions": rows}))

    def reassign(self, act: str, *arguments: str) -> str:
        main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        given = ["--bootstrap-server", self._bootstrap, act]
        return run_tool(main, [*given, "--reassignment-json-file", str(self._file), *arguments])

    def futures(self, broker_id: int) -> list[Mapping[str, Any]]:
        """What kafka-log-dirs says of copies that are being made."""
        main = "org.apache.kafka.tools.LogDirsCommand"
        given = ["--bootstrap-server", self._bootstrap, "--describe", "--topic-list", TOPIC]
        told = run_tool(main, [*given, "--broker-list", str(broker_id)])
        (answer,) = re.findall(r"^\{.*\}$", told, re.MULTILINE)
        return [
            row
            for broker in json.loads(answer)["brokers"]
            for log_dir in broker["logDirs"]
            for row in log_dir["partitions"]
            if row["isFuture"]
        ]


def until(holds: Callable[[], object], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at, f"after {PATIENCE_S} s still not: {what}"
        time.sleep(0.1)


def held(*paths: Path) -> dict[str, list[str]]:
    """All that these directories hold of the topic, whatever state it is in: names by the name of the log directory."""
    return {path.name: sorted(each.name for each in path.glob(f"{TOPIC}*")) for path in paths}


def is_at(target: Path, other: Path) -> bool:
    """Whether the topic is in the one directory, complete, and nothing of it in the other."""
    return held(target, other) == {target.name: names(), other.name: []}


def logs(*paths: Path) -> list[str]:
    """Their logs, without copies of such and what is on its way out."""
    found = [each for names in held(*paths).values() for each in names]
    return sorted(each for each in found if "." not in each)


def names() -> list[str]:
    return [f"{TOPIC}-{index}" for index in range(PARTITIONS)]


@contextmanager
def filled(admin: AdminClient, bootstrap: str, replicas: Sequence[int]) -> Iterator[None]:
    """The topic is there with SIZE in each partition, and is written and read inside; nothing of that may be missing afterwards."""
    made = admin.create_topics(
        [NewTopic(TOPIC, PARTITIONS, replica_assignment=[list(replicas)] * PARTITIONS)]
    )
    made[TOPIC].result(PATIENCE_S)
    fill(bootstrap, TOPIC, PARTITIONS, SIZE)
    with load(bootstrap, TOPIC) as clients:
        yield
    print(f"{len(clients.acknowledged)} acknowledged, longest stall {clients.stall_s:.1f} s")
    clients.check()


def with_two(rig: Rig, number: int) -> tuple[Path, Path]:
    return rig.directory / f"one-{number}", rig.directory / f"two-{number}"


@pytest.mark.timeout(600)
@pytest.mark.full
def test_logs_move_under_load_and_past_a_death_of_the_broker(rig: Rig, tmp_path: Path) -> None:
    one, two = with_two(rig, 1)
    broker = rig.broker({**CONFIG, "log.dirs": f"{one},{two}"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    tools = Tools(broker.bootstrap, tmp_path)
    with filled(admin, broker.bootstrap, [1]):
        tools.plan([1], [two])
        throttle = "--replica-alter-log-dirs-throttle"
        assert "Successfully started" in tools.reassign("--execute", throttle, str(128 * KIB))
        futures = tools.futures(1)
        assert futures
        assert all(row["offsetLag"] > 0 for row in futures)
        assert "is still in progress" in tools.reassign("--verify")
        until(lambda: any("future" in each for each in held(two)[two.name]), "a copy is begun")
        broker.kill()
        assert logs(one, two) == names()
        broker.start()
        assert tools.futures(1) == []

        tools.reassign("--execute", "--additional", throttle, str(64 * MIB))
        until(partial(is_at, two, one), "all has moved")
        verified = tools.reassign("--verify")
        assert verified.count("completed successfully") >= PARTITIONS
        assert tools.futures(1) == []
        broker.kill()  # what was written since is in the new directory alone
        broker.start()
        assert is_at(two, one)


def broker_with_two(directory: Path, config: Mapping[str, str], name: str) -> Broker:
    one, two = directory / "one", directory / "two"
    return Broker(directory, {**config, "log.dirs": f"{one},{two}"}, name)


@pytest.mark.timeout(600)
@pytest.mark.full
def test_leaders_and_followers_move_while_one_of_them_dies(rig: Rig, tmp_path: Path) -> None:
    """Each replica is there once, and all replicas are alike in the end."""
    config = {**CONFIG, "min.insync.replicas": "2"}
    fleet = rig.fleet(3, config=config, made=broker_with_two)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    pairs = [(broker.data.parent / "one", broker.data.parent / "two") for broker in fleet.brokers]
    with filled(admin, fleet.bootstrap, [1, 2, 3]):
        for target in (1, 0):
            tools = Tools(fleet.bootstrap, tmp_path)
            tools.plan([1, 2, 3], [pair[target] for pair in pairs])
            tools.reassign("--execute", "--replica-alter-log-dirs-throttle", str(MIB))
            fleet.brokers[target].kill()  # the leader of all first, which is a follower next
            fleet.brokers[target].start()
            tools.reassign(
                "--execute", "--additional", "--replica-alter-log-dirs-throttle", str(64 * MIB)
            )
            for pair in pairs:
                until(partial(is_at, pair[target], pair[1 - target]), "all has moved")
            assert "is still in progress" not in tools.reassign("--verify")
    for broker in fleet.brokers:
        broker.kill()
    for name in names():
        logs_of = {
            broker.name: sorted((pair[0] / name).glob("*.log"))
            for broker, pair in zip(fleet.brokers, pairs, strict=True)
        }
        dumps = {broker: batches_of(dump_log(files)) for broker, files in logs_of.items()}
        ends = dict.fromkeys(next(iter(dumps.values())), 1 << 60)
        assert differences(dumps, ends) == []
