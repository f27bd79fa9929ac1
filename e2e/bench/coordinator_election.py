"""How soon groups with a million offsets are served again when their coordinator is killed: python -m e2e.bench.coordinator_election [offsets]

Three brokers, one partition of `__consumer_offsets`, GROUP_OFFSETS offsets in each group. Prints what was measured, as JSON:
ready_s from the kill to the first OffsetFetch that is answered, by asking both others each 5 ms; silent_ms of it in which the new leader was known by
the metadata of a survivor and no answer came; the memory of a follower before and after; and how long it went on reading after the last commit, with
what processor time.
"""

import asyncio
import json
import sys
import time

from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from e2e.bench.conditions import bench_rig
from e2e.harness.processes import Broker, Fleet

GROUP_OFFSETS = 1000
TIMEOUT_MS = 30_000
RESIDENT = "process_resident_memory_bytes"
CPU = "process_cpu_seconds_total"
LOOK_S = 2.0
IDLE_SHARE = 0.05
"""Of a processor, below which a follower has read all that there is."""


async def find(connection: Connection) -> int:
    """Id of the groups' coordinator."""
    while True:
        answer = await connection.request(
            FindCoordinatorRequest(coordinator_keys=["g"]),
            FindCoordinatorResponse,
            timeout_ms=TIMEOUT_MS,
        )
        (found,) = answer.coordinators
        if found.error_code == ErrorCode.NONE:
            return found.node_id
        await asyncio.sleep(0.05)


async def connect(broker: Broker) -> Connection:
    return await Connection.connect("127.0.0.1", broker.port, "bench")


async def commit_all(connection: Connection, groups: int) -> None:
    row = OffsetCommitRequest.OffsetCommitRequestPartition
    for group in range(groups):
        rows = [row(partition_index=each, committed_offset=group) for each in range(GROUP_OFFSETS)]
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=rows)
        while True:
            answer = await connection.request(
                OffsetCommitRequest(group_id=f"g-{group}", topics=[topic]),
                OffsetCommitResponse,
                timeout_ms=TIMEOUT_MS,
                version_max=8,
            )
            codes = {each.error_code for each in answer.topics[0].partitions}
            if codes == {0}:
                break
            await asyncio.sleep(0.05)


async def is_answered(connection: Connection, group: int) -> bool:
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=f"g-{group}", topics=None)
    answer = await connection.request(
        OffsetFetchRequest(groups=[wanted]),
        OffsetFetchResponse,
        timeout_ms=TIMEOUT_MS,
        version_max=8,
    )
    (found,) = answer.groups
    if found.error_code:
        return False
    assert sum(len(topic.partitions) for topic in found.topics) == GROUP_OFFSETS
    return True


async def until_idle(broker: Broker) -> tuple[float, float]:
    """Wait until it has nothing to do: how long that took and how much processor time."""
    begun, first = time.monotonic(), broker.metric(CPU)
    while True:
        before = broker.metric(CPU)
        await asyncio.sleep(LOOK_S)
        after = broker.metric(CPU)
        if after - before < IDLE_SHARE * LOOK_S:
            return time.monotonic() - begun, after - first


async def measure(fleet: Fleet, groups: int) -> dict[str, float]:
    async with Client(fleet.bootstrap) as client:
        await Admin(client).create_topic(NewTopic("t", GROUP_OFFSETS, 1))
    connection = await connect(fleet.brokers[0])
    leader = await find(connection)
    others = [each for each in fleet.brokers if each.config["node.id"] != str(leader)]
    before = others[0].metric(RESIDENT)
    begun = time.monotonic()
    await commit_all(await connect(fleet.brokers[leader - 1]), groups)
    committing_s = time.monotonic() - begun
    warm_s, warm_cpu_s = await until_idle(others[0])
    after = others[0].metric(RESIDENT)
    survivors = [await connect(each) for each in others]
    killed = time.monotonic()
    fleet.brokers[leader - 1].kill()
    elected = 0.0
    while True:
        try:
            if not elected and await find(survivors[0]) != leader:
                elected = time.monotonic()
            answers = [await is_answered(each, groups - 1) for each in survivors]
        except ClientError as error:
            raise SystemExit(f"a survivor does not answer: {error}") from error
        if any(answers):
            break
        await asyncio.sleep(0.005)
    ready = time.monotonic()
    return {
        "offsets": groups * GROUP_OFFSETS,
        "committing_s": round(committing_s, 1),
        "warm_s_after_the_last_commit": round(warm_s, 1),
        "warm_cpu_s_after_the_last_commit": round(warm_cpu_s, 1),
        "follower_bytes_before": before,
        "follower_bytes_after": after,
        "ready_s": round(ready - killed, 3),
        "silent_ms": round(1000 * (ready - (elected or ready)), 1),
    }


def main() -> None:
    offsets = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with bench_rig("election") as rig:
        config = {"offsets.topic.num.partitions": "1", "min.insync.replicas": "2"}
        fleet = rig.fleet(3, zones=["a", "b", "c"], config=config)
        print(json.dumps(asyncio.run(measure(fleet, offsets // GROUP_OFFSETS))))


if __name__ == "__main__":
    main()
