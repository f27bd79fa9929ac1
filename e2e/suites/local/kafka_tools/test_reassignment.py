"""Partitions move to other brokers by Kafka's own tool while a producer and a group go on; brokers die in the midst of it (KIP-455)."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.kafka import dump_log, run_tool
from e2e.harness.processes import Fleet, Rig
from e2e.load.fleet.replicas import batches_of, differences
from e2e.load.running import fill, load

PARTITIONS = 4
MIB = 1024 * 1024
PATIENCE_S = 90
CONFIG = {"default.replication.factor": "3", "min.insync.replicas": "2"}

Plan = dict[int, Sequence[int]]
"""Broker ids by partition, the preferred leader first."""


class Mover:
    """kafka-reassign-partitions over one topic."""

    def __init__(self, fleet: Fleet, topic: str, directory: Path) -> None:
        self._fleet, self._topic, self._file = fleet, topic, directory / "plan.json"

    def run(self, act: str, plan: Plan, *arguments: str) -> str:
        rows = [
            {"topic": self._topic, "partition": index, "replicas": list(replicas)}
            for index, replicas in plan.items()
        ]
        self._file.write_text(json.dumps({"version": 1, "partitions": rows}))
        given = ("--reassignment-json-file", str(self._file), *arguments)
        return self.ask(act, *given)

    def ask(self, *arguments: str) -> str:
        main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return run_tool(main, ["--bootstrap-server", self._fleet.bootstrap, *arguments])


def replicas(admin: AdminClient, topic: str) -> dict[int, tuple[list[int], list[int]]]:
    """Replicas and ISR by partition."""
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {index: (each.replicas, sorted(each.isrs)) for index, each in found.items()}


def until(holds: Callable[[], object], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at, f"after {PATIENCE_S} s still not: {what}"
        time.sleep(0.05)


def is_at(admin: AdminClient, topic: str, plan: Plan) -> bool:
    there = replicas(admin, topic)
    return all(there[index] == (list(ids), sorted(ids)) for index, ids in plan.items())


def logs(fleet: Fleet, broker_id: int, topic: str) -> list[Path]:
    directory = fleet.brokers[broker_id - 1].data
    return sorted(directory.glob(f"{topic}-[0-9]/*.log"))


def differ(fleet: Fleet, topic: str, plan: Plan) -> list[str]:
    """Where the replicas that the plan names are not alike, by Kafka's dump; all of them are stopped."""
    odd = []
    for index, ids in plan.items():
        dumps = {}
        for each in ids:
            files = [
                path for path in logs(fleet, each, topic) if path.parent.name == f"{topic}-{index}"
            ]
            dumps[f"broker {each}"] = batches_of(dump_log(files))
        ends = dict.fromkeys(next(iter(dumps.values())), 1 << 60)
        odd += differences(dumps, ends)
    return odd


@pytest.mark.timeout(600)
@pytest.mark.full
def test_partitions_move_under_load_while_brokers_die(rig: Rig, tmp_path: Path) -> None:
    fleet = rig.fleet(5, zones=["a", "b", "c"], config=CONFIG)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    topic = "moving"
    began: Plan = dict.fromkeys(range(PARTITIONS), (1, 2, 3))
    wanted: Plan = dict.fromkeys(range(PARTITIONS), (4, 5, 3))
    made = admin.create_topics(
        [NewTopic(topic, PARTITIONS, replica_assignment=[[1, 2, 3]] * PARTITIONS)]
    )
    made[topic].result(PATIENCE_S)
    fill(fleet.bootstrap, topic, PARTITIONS, 4 * MIB)
    mover = Mover(fleet, topic, tmp_path)
    with load(fleet.bootstrap, topic) as clients:
        # so slow that there is time to cancel it
        assert "Successfully started" in mover.run("--execute", wanted, "--throttle", str(MIB // 4))
        listed = mover.ask("--list")
        assert f"{topic}-0: replicas: 4,5,3,1,2. adding: 4,5. removing: 1,2." in listed
        assert "is still in progress" in mover.run("--verify", wanted)
        assert "Successfully cancelled" in mover.run("--cancel", wanted)
        until(lambda: is_same(admin, topic, began), "it is where it was")
        until(
            lambda: not logs(fleet, 4, topic) and not logs(fleet, 5, topic), "nothing is left of it"
        )

        mover.run("--execute", wanted, "--throttle", str(MIB // 2))
        fleet.brokers[3].kill()  # one that is being filled
        fleet.brokers[0].kill()  # who led
        fleet.brokers[3].start()
        fleet.brokers[0].start()
        mover.run("--execute", wanted, "--additional", "--throttle", str(64 * MIB))
        until(lambda: is_at(admin, topic, wanted), "it has moved")
        assert "is completed" in mover.run("--verify", wanted)
        assert mover.ask("--list").strip() == "No partition reassignments found."
        until(lambda: not logs(fleet, 2, topic), "the old broker has nothing of it")
    fleet_stopped(fleet)
    assert differ(fleet, topic, wanted) == []
    print(f"{len(clients.acknowledged)} acknowledged, longest stall {clients.stall_s:.1f} s")
    clients.check()


@pytest.mark.timeout(600)
def test_a_topic_gets_more_replicas_and_fewer_under_load(rig: Rig, tmp_path: Path) -> None:
    fleet = rig.fleet(3, zones=["a", "b", "c"], config=CONFIG)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    topic = "grown"
    made = admin.create_topics([NewTopic(topic, PARTITIONS, replica_assignment=[[1]] * PARTITIONS)])
    made[topic].result(PATIENCE_S)
    mover = Mover(fleet, topic, tmp_path)
    with load(fleet.bootstrap, topic) as clients:
        for ids in ((1, 2, 3), (3, 2)):
            plan: Plan = dict.fromkeys(range(PARTITIONS), ids)
            mover.run("--execute", plan)
            until(partial(is_at, admin, topic, plan), f"it is on {ids}")
        until(lambda: not logs(fleet, 1, topic), "the old broker has nothing of it")
    fleet_stopped(fleet)
    assert differ(fleet, topic, plan) == []
    clients.check()


def is_same(admin: AdminClient, topic: str, plan: Plan) -> bool:
    """Whether the replicas are these, in any order, and all in sync."""
    there = replicas(admin, topic)
    return all(
        (sorted(there[index][0]), there[index][1]) == (sorted(ids), sorted(ids))
        for index, ids in plan.items()
    )


def fleet_stopped(fleet: Fleet) -> None:
    for broker in fleet.brokers:
        broker.kill()


def test_replicas_that_are_added_keep_to_their_rate_and_nothing_has_to_be_taken_away(
    rig: Rig, tmp_path: Path
) -> None:
    """Without --throttle, as a Topic that gets more replicas; a topic beside it is not slowed down."""
    fleet = rig.fleet(3, zones=["a", "b", "c"], config={"replication.quota.window.num": "2"})
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    topic, size = "growing", 8 * MIB
    made = admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1]])])
    made[topic].result(PATIENCE_S)
    fill(fleet.bootstrap, topic, 1, size)
    rate = f"logfleet.reassignment.throttled.rate={MIB}"
    entity = ["--bootstrap-server", fleet.bootstrap, "--entity-type", "brokers", "--entity-default"]
    run_tool("kafka.admin.ConfigCommand", [*entity, "--alter", "--add-config", rate])
    wanted: Plan = {0: (1, 2)}
    Mover(fleet, topic, tmp_path).run("--execute", wanted)
    began = time.monotonic()
    until(lambda: is_at(admin, topic, wanted), "the replica is there")
    took_s = time.monotonic() - began
    print(f"{size} bytes in {took_s:.1f} s")
    # the tool itself takes a second or two, in which it is copied already
    assert 0.6 * size / MIB <= took_s <= 2 * size / MIB
    described = run_tool(
        "kafka.admin.ConfigCommand",
        [*entity[:2], "--entity-type", "topics", "--entity-name", topic, "--describe"],
    )
    assert "throttled" not in described
