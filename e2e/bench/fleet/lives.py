"""Leaders that move, and many partitions: fleets of their own, one at a time, on all processors, thrown away with their data."""

import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.wire.messages import ElectLeadersRequest

from e2e.bench.cpu import cpu_time
from e2e.bench.figures import Rounds, Values
from e2e.bench.fleet.fleets import NODES, Fleet, started
from e2e.bench.fleet.rows import LAG, LAG_KEYS, LAG_PHASES, LAG_PLACES, LEADERS, REPLICAS
from e2e.bench.kafka.rows import SMALL_INDEXES, Life
from e2e.bench.lag.probe import Figures
from e2e.bench.lag.watched_broker import WatchedBroker
from e2e.bench.rounds import report, rotated
from e2e.harness.processes import Broker
from e2e.harness.program import Program
from e2e.harness.wire_connection import WireConnection

TOPIC_PARTITIONS = 1_000
"""More in one request are more records than Kafka's controller writes in one batch (QuorumController.MAX_RECORDS_PER_USER_OP)."""
PREFERRED = 0
"""ElectLeaders' type of election."""
PATIENCE_S = 300.0
SETTLE_S, IDLE_S = 5.0, 10.0
"""Idle processor time is looked at for so long, once what has to be done after the creation is done."""
LEAVE_S_MAX = 150.0
"""A broker waits for others to take over what would be below min.insync.replicas, as it is with one of three gone, for most of a minute."""
MIB = 2**20
SIDES = ("ours", "kafka")


class WatchedMember(WatchedBroker):
    """One broker of a fleet whose loops are looked at."""

    phases = LAG_PHASES


def run_lives(
    lives: Collection[Life], directory: Path, *, rounds: int, leaders: int, partitions: int
) -> dict[str, Rounds]:
    """By row. rounds: how often leaders move. leaders, partitions: how many."""
    found: dict[str, Rounds] = {life.name: {side: [] for side in SIDES} for life in lives}
    for place, life in enumerate(lives):
        for side in ["ours"] if life is LAG else rotated(SIDES, place):
            where = directory / f"{side}-{life.name}"
            with started(side, where, made=WatchedMember if life is LAG else Broker) as fleet:
                if life is LEADERS:
                    values = moves(fleet, leaders, rounds)
                else:
                    values = [
                        lateness(fleet, partitions) if life is LAG else many(fleet, partitions)
                    ]
            found[life.name][side] += values
            for each in values:
                report(life.name, side, each)
            shutil.rmtree(where)
    return found


def moves(fleet: Fleet, leaders: int, rounds: int) -> list[Values]:
    """Node 1 leads all there is, leaves, comes back and is elected again."""
    topics = _created(fleet, leaders, leader=1)
    return [_left(fleet, topics) | _returned(fleet, topics) for _ in range(rounds)]


def _left(fleet: Fleet, topics: Collection[str]) -> Values:
    node, begun_s = fleet.node(1), time.monotonic()
    node.send(signal.SIGTERM)
    fleet.view(1).until_led_by(topics, {2, 3})
    leave_s = time.monotonic() - begun_s
    node.wait(PATIENCE_S)
    return {"leave_s": leave_s, "exit_s": time.monotonic() - begun_s}


def _returned(fleet: Fleet, topics: Mapping[str, int]) -> Values:
    begun_s = time.monotonic()
    fleet.node(1).start()
    fleet.view().until_whole(topics, REPLICAS)
    whole_s = time.monotonic()
    rows = [
        ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(range(size)))
        for topic, size in topics.items()
    ]
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=rows, timeout_ms=60_000)
    with WireConnection(fleet.node(fleet.controller()).port, timeout_s=PATIENCE_S) as connection:
        answer = connection.call(request, 2)
    assert answer.error_code == 0, answer.error_code
    fleet.view().until_led_by(topics, {1})
    return {"return_s": whole_s - begun_s, "elect_s": time.monotonic() - whole_s}


def many(fleet: Fleet, partitions: int) -> Values:
    """What many partitions take of three nodes, and how long they are without a leader when the controller dies."""
    begun_s = time.monotonic()
    topics = _created(fleet, partitions)
    values = {"create_s": time.monotonic() - begun_s}
    time.sleep(SETTLE_S)
    nodes, beside = list(fleet.cluster.nodes), list(fleet.cluster.beside)
    before, before_beside = _cpu_ns(nodes), _cpu_ns(beside)
    time.sleep(IDLE_S)
    idle, idle_beside = _cpu_ns(nodes) - before, _cpu_ns(beside) - before_beside
    values["idle_ms_per_s"] = idle / 1e6 / IDLE_S
    values["whole_idle_ms_per_s"] = (idle + idle_beside) / 1e6 / IDLE_S
    values["rss_mib"] = max(node.rss_bytes() for node in nodes) / MIB
    values["whole_rss_mib"] = sum(each.rss_bytes() for each in [*nodes, *beside]) / MIB
    return values | _failover(fleet, topics)


def _failover(fleet: Fleet, topics: Collection[str]) -> Values:
    """The controller's broker is killed: seconds until all is led again, and until a topic could be made."""
    victim = fleet.controller()
    others = {1, 2, 3} - {victim}
    admin = _admin(fleet, *others)
    with ThreadPoolExecutor(1) as threads:
        begun_s = time.monotonic()
        fleet.node(victim).kill()
        served = threads.submit(_until_made, admin)
        fleet.view(victim).until_led_by(topics, others)
        led_s = time.monotonic() - begun_s
        return {"led_s": led_s, "served_s": served.result() - begun_s}


def _until_made(admin: AdminClient) -> float:
    """When a topic was made, in monotonic seconds."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            admin.create_topics([NewTopic("made", 1, 1)])["made"].result(PATIENCE_S)
        except KafkaException:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.05)
        else:
            return time.monotonic()


def lateness(fleet: Fleet, partitions: int) -> Values:
    """How late loops were in each phase: of the broker that was latest."""
    nodes = [node for node in fleet.cluster.nodes if isinstance(node, WatchedMember)]
    assert len(nodes) == NODES

    def begin() -> None:
        for node in nodes:
            node.next_phase()

    begin()
    topics = _created(fleet, partitions)
    time.sleep(SETTLE_S)
    begin()
    time.sleep(IDLE_S)
    begin()
    victim = fleet.controller()
    nodes.remove(nodes[victim - 1])
    _failover(fleet, topics)
    time.sleep(SETTLE_S)
    begin()
    for node in nodes:  # whose partitions would be below min.insync.replicas: each waits for leave
        node.terminate(LEAVE_S_MAX)
    seen = [node.seen() for node in nodes]
    for phases in seen:
        show_steps(phases)
    return most_late(seen)


def most_late(seen: Sequence[Sequence[Figures]]) -> Values:
    """In each phase the figures of the broker that was latest, in ms of its own."""
    return {
        f"{key}_{place}": max(phases[number].own_ms[place] for phases in seen)
        for number, key in enumerate(LAG_KEYS)
        for place in LAG_PLACES
    }


def show_steps(phases: Sequence[Figures]) -> None:
    """What a loop was in when it was late, for whoever would mend it."""
    for phase in phases:
        for step, count in phase.steps.items():
            print(
                f"  {phase.name}: {phase.over} of {phase.looks}: {count} x {step}", file=sys.stderr
            )


def _created(fleet: Fleet, partitions: int, leader: int | None = None) -> dict[str, int]:
    """Topics of TOPIC_PARTITIONS at most, their sizes by name, all in sync. leader: who shall be the preferred one of all."""
    topics: dict[str, int] = {}
    admin = _admin(fleet, 1, 2, 3)
    for number, first in enumerate(range(0, partitions, TOPIC_PARTITIONS)):
        name, size = f"many-{number}", min(TOPIC_PARTITIONS, partitions - first)
        config = dict(SMALL_INDEXES)
        if leader is None:
            new = NewTopic(name, size, REPLICAS, config=config)
        else:
            others = [each for each in (1, 2, 3) if each != leader]
            rows = [[leader, *others[:: 1 if each % 2 else -1]] for each in range(size)]
            new = NewTopic(name, size, replica_assignment=rows, config=config)
        made = admin.create_topics([new], operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)
        made[name].result(PATIENCE_S)
        topics[name] = size
    fleet.view().until_whole(topics, REPLICAS)
    return topics


def _admin(fleet: Fleet, *nodes: int) -> AdminClient:
    bootstrap = ",".join(fleet.node(each).bootstrap for each in nodes)
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def _cpu_ns(programs: Sequence[Program]) -> int:
    return sum(cpu_time(program.pid).total_ns for program in programs)
