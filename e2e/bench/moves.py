"""`make bench-moves`: what moving 1 GiB does to producers, whether it keeps its throttle, and how evenly three brokers become six.

A paced producer with acks=all measures the time of each send, before the move and during it; what counts is the ratio. Prints a table and stores it in e2e/results/moves.json.
"""

import asyncio
import sys
import time
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.balance.load import BrokerLoad, Load, PartitionLoad
from logfleet.balance.planner import plan
from logfleet.balance.rebalancing import Goal, advance, finish, make_plan, throttle
from logfleet.client.cluster import Client
from logfleet.client.offsets import TopicPartition
from logfleet.client.reassignments import alter_reassignments, list_reassignments

from e2e.bench.conditions import bench_rig, conditions
from e2e.harness.processes import Broker, Fleet, Rig
from e2e.harness.results import RESULTS, source_key, store
from e2e.load.running import fill

STORE: Final = RESULTS / "moves.json"
SOURCES: Final = ("broker_image/src", "broker_image/requirements.lock", "e2e/bench/moves.py")
MIB: Final = 1 << 20
PARTITIONS: Final = 8
SIZE: Final = 1024 * MIB
RATE: Final = 32 * MIB
PACED_PER_S: Final = 500
WARM_UP_S: Final = 20.0
BEFORE_S: Final = 20.0
ZONES: Final = ("a", "b", "c")
TOPIC: Final = "big"
PACED: Final = "paced"
WITHIN_S: Final = 300.0
CONFIG: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}


class Paced:
    """A producer of so many records a second; times: seconds from send to acknowledgement, in order."""

    def __init__(self, bootstrap: str) -> None:
        self.times: list[float] = []
        self.failed = 0
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(settings)

    async def run(self) -> None:
        """Until cancelled."""
        number, began = 0, time.monotonic()
        while True:
            while number < (time.monotonic() - began) * PACED_PER_S:
                self._producer.produce(PACED, b"x" * 100, on_delivery=self._timer())
                number += 1
            self._producer.poll(0)
            await asyncio.sleep(0.001)

    def _timer(self) -> Any:
        sent = time.monotonic()

        def told(error: KafkaError | None, _: Message) -> None:
            self.times.append(time.monotonic() - sent)
            self.failed += error is not None

        return told

    def take(self) -> list[float]:
        taken, self.times = self.times, []
        return taken


def p99_ms(times: list[float]) -> float:
    ordered = sorted(times)
    return round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2)


async def move(client: Client, paced: Paced) -> dict[str, Any]:
    """One replica of each partition goes from broker 1 to broker 4, so 1 GiB is copied."""
    await asyncio.sleep(WARM_UP_S)  # the disk has what was filled in to write
    paced.take()
    await asyncio.sleep(BEFORE_S)
    before = p99_ms(paced.take())
    await throttle(client, RATE, {TOPIC})
    began = time.monotonic()
    wanted = {TopicPartition(TOPIC, index): (4, 2, 3) for index in range(PARTITIONS)}
    refused = await alter_reassignments(client, wanted)
    assert not refused, refused
    while await list_reassignments(client):
        assert time.monotonic() < began + WITHIN_S, "it does not end"
        await asyncio.sleep(0.2)
    seconds = time.monotonic() - began
    during = p99_ms(paced.take())
    await finish(client, Goal(throttle=RATE))
    return {
        "bytes": SIZE,
        "throttle": RATE,
        "seconds": round(seconds, 1),
        "times_the_throttle": round(SIZE / seconds / RATE, 2),
        "p99_ms_before": before,
        "p99_ms_during": during,
        "p99_ratio": round(during / before, 2),
        "failed": paced.failed,
    }


async def spread(client: Client) -> dict[str, Any]:
    """All six brokers get their share."""
    goal = Goal(throttle=4 * RATE)
    made = await make_plan(client, goal)
    began, copied = time.monotonic(), made.bytes
    while not (await advance(client, goal)).is_done:
        assert time.monotonic() < began + 2 * WITHIN_S, "it does not end"
        await asyncio.sleep(0.5)
    await finish(client, goal)
    after = (await make_plan(client, goal)).before
    return {
        "skew_before": made.before.bytes,
        "skew_after": after.bytes,
        "bytes_planned": copied,
        "bytes_least": made.least_bytes,
        "times_the_least": round(copied / made.least_bytes, 3),
        "seconds": round(time.monotonic() - began, 1),
    }


def add_brokers(rig: Rig, fleet: Fleet) -> None:
    for number in (4, 5, 6):
        config = {"node.id": str(number), "broker.rack": ZONES[(number - 1) % 3], **CONFIG}
        broker = rig.own(Broker(rig.directory / f"broker-{number}", config, f"broker-{number}"))
        fleet.add(broker)
        broker.start()


def plan_many() -> dict[str, Any]:
    """Six brokers in three zones become twelve, with 10,000 partitions of 1 to 997 MiB: what the planner takes."""
    brokers = tuple(BrokerLoad(number, ZONES[(number - 1) % 3]) for number in range(1, 13))
    partitions = tuple(
        PartitionLoad(
            TOPIC,
            number,
            tuple(1 + (number + turn) % 6 for turn in range(3)),
            (number * 7919 % 997 + 1) * MIB,
        )
        for number in range(10_000)
    )
    began = time.process_time()
    made = plan(Load(brokers, partitions))
    return {
        "moves": len(made.moves),
        "cpu_s": round(time.process_time() - began, 2),
        "skew_after": made.after.bytes,
        "times_the_least": round(made.bytes / made.least_bytes, 3),
    }


async def measure(fleet: Fleet) -> dict[str, Any]:
    paced = Paced(fleet.bootstrap)
    running = asyncio.ensure_future(paced.run())
    async with Client(fleet.bootstrap, request_timeout_ms=30_000) as client:
        moved = await move(client, paced)
        running.cancel()
        return {"move": moved, "three to six": await spread(client)}


def main() -> int:
    with bench_rig("moves") as rig:
        fleet = rig.fleet(3, zones=ZONES, config=CONFIG)
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
        layout = [[1, 2, 3]] * PARTITIONS
        made = admin.create_topics(
            [
                NewTopic(TOPIC, PARTITIONS, replica_assignment=layout),
                NewTopic(PACED, 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]]),
            ]
        )
        for each in made.values():
            each.result(60)
        fill(fleet.bootstrap, TOPIC, PARTITIONS, SIZE // PARTITIONS)
        add_brokers(rig, fleet)
        entry = {**asyncio.run(measure(fleet)), "plan of 10,000 partitions": plan_many()}
    for name, row in entry.items():
        print(name)
        for key, value in row.items():
            print(f"  {key:<22}{value:>16}")
    store(STORE, source_key(*SOURCES), {**entry, "conditions": conditions()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
