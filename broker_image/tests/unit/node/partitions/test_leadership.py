from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.partition_log import PartitionLog
from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.node.partitions.leader_partition import LeaderPartition as Led
from logfleet.node.partitions.leadership import LAG_MAX_MS, Leadership
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.records.record import Record, build_batch
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.log.log_rig import LogRig

pytestmark = pytest.mark.asyncio

ID, NODE, REGISTERED = bytes(range(16)), 1, 5


def topic(*leader_epochs: int, broker_epoch: int = REGISTERED) -> Topic:
    """All of its partitions are given to this broker as it was registered in that epoch."""
    states = [
        Partition(
            (NODE,),
            ((NODE, BrokerEpoch(broker_epoch)),),
            NODE,
            LeaderEpoch(epoch),
            PartitionEpoch(0),
            0,
            revision=1,
        )
        for epoch in leader_epochs
    ]
    return Topic(ID, "topic", partitions=tuple(states))


class Bench:
    """told: what of the partitions began and ended, in order."""

    def __init__(self, rig: LogRig) -> None:
        self.rig = rig
        self.table = PartitionTable(ClusterImage)
        self.flusher = Flusher(rig.files)
        self.leadership = Leadership(NODE, self.table, self.flusher)
        self.leadership.broker_epoch = BrokerEpoch(REGISTERED)
        self.told: list[tuple[str, int]] = []
        self.leadership.on_led.append(lambda each: self.told.append(("led", each.index)))
        self.leadership.on_lost.append(lambda each: self.told.append(("lost", each.index)))

    async def begin(self, wanted: Topic, index: int) -> None:
        replica = self.table.replica(ID, index) or Replica("topic", ID, index, self.rig.open())
        state = wanted.partitions[index]
        await self.leadership.begin(
            state, replica, lambda: None if (ID, index) in self.table.offline else state
        )

    async def lead(self, wanted: Topic) -> list[int]:
        """What the image wants is begun; what that is."""
        starting = await self.leadership.follow(wanted)
        for index in starting:
            await self.begin(wanted, index)
        return starting


@pytest.fixture
def bench(rig: LogRig) -> Iterator[Bench]:
    made = Bench(rig)
    yield made
    made.flusher.stop()


async def test_a_partition_is_served_once_its_leader_epoch_is_on_disk(bench: Bench) -> None:
    """KAFKA-16541."""
    file = Path(bench.rig.directory, "leader-epoch-checkpoint")
    on_disk = []
    bench.leadership.on_led.append(lambda _: on_disk.append(file.read_text().splitlines()[-1]))
    await bench.lead(topic(7))
    partition = bench.table.get("topic", 0)
    assert partition is not None
    assert (partition.leader_epoch, on_disk) == (7, ["7 0"])


async def test_another_leader_epoch_ends_a_partition_and_begins_it_again(bench: Bench) -> None:
    assert await bench.lead(topic(0, 3)) == [0, 1]
    assert await bench.lead(topic(0, 3)) == []
    assert await bench.lead(topic(0, 4)) == [1]
    assert bench.told == [("led", 0), ("led", 1), ("lost", 1), ("led", 1)]


async def test_a_leader_epoch_that_has_ended_is_not_led_again(bench: Bench) -> None:
    """An answer of the metadata store may report its end sooner than an image does."""
    await bench.lead(topic(3))
    led = bench.table.get("topic", 0)
    assert led is not None
    bench.leadership.end(led)
    await bench.lead(topic(3))
    assert bench.table.get("topic", 0) is None
    await bench.lead(topic(4))
    assert bench.told == [("led", 0), ("lost", 0), ("led", 0)]


async def test_a_change_of_the_isr_is_learned_and_ends_nothing(bench: Bench) -> None:
    (state,) = topic(0).partitions
    state = msgspec.structs.replace(
        state, replicas=(NODE, 2, 3), isr=((NODE, REGISTERED), (2, 6)), min_isr=1
    )
    await bench.lead(Topic(ID, "topic", partitions=(state,)))
    led = bench.table.get("topic", 0)
    assert led is not None
    led.append(build_batch([Record(None, b"value", 0)]), 0)
    assert (led.has_followers, led.high_watermark) == (True, 0)
    state = msgspec.structs.replace(state, isr=((NODE, REGISTERED),), partition_epoch=1)
    assert await bench.leadership.follow(Topic(ID, "topic", partitions=(state,))) == []
    assert (bench.table.get("topic", 0), led.high_watermark) == (led, 1)


async def test_a_leader_begins_with_what_its_replica_knew_to_be_committed(bench: Bench) -> None:
    """More may be: that shows when the others have fetched from it."""
    log = bench.rig.open()
    for _ in range(3):
        log.append_as_leader(build_batch([Record(None, b"value", 0)]), LeaderEpoch(0), 0)
    bench.table.add(Replica("topic", ID, 0, log, high_watermark=1))
    (state,) = topic(0).partitions
    state = msgspec.structs.replace(
        state, replicas=(NODE, 2), isr=((NODE, REGISTERED), (2, 6)), min_isr=1
    )
    await bench.lead(Topic(ID, "topic", partitions=(state,)))
    led = bench.table.get("topic", 0)
    assert led is not None
    assert (led.high_watermark, led.epoch_start_offset) == (1, 3)


async def test_a_log_is_hosted_on_when_leading_it_ends(bench: Bench) -> None:
    """Its retention and its checkpoints go on, from what was committed last."""
    await bench.lead(topic(0))
    led = bench.table.get("topic", 0)
    assert led is not None
    led.append(build_batch([Record(None, b"value", 0)]), 0)
    bench.leadership.resign()
    (replica,) = bench.table
    assert type(replica) is Replica
    assert (replica.log, replica.high_watermark, led.is_leading) == (led.log, 1, False)


async def test_nothing_is_led_by_a_later_registration_than_the_image_means(bench: Bench) -> None:
    """The image gives it to the former registration; the next image may give it to this one."""
    (index,) = await bench.leadership.follow(topic(0))
    bench.leadership.resign()
    bench.leadership.broker_epoch = BrokerEpoch(REGISTERED + 1)
    await bench.begin(topic(0), index)
    assert list(bench.table.led()) == []
    assert await bench.lead(topic(1, broker_epoch=REGISTERED + 1)) == [0]


@pytest.mark.parametrize("registers_anew", [False, True])
async def test_what_a_registration_gave_is_not_led_if_it_ends_while_the_epoch_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, registers_anew: bool
) -> None:
    """Nothing else would end the leadership before the next image, which may be late."""

    async def flush(log: PartitionLog) -> None:
        bench.leadership.resign()
        if registers_anew:
            bench.leadership.broker_epoch = BrokerEpoch(REGISTERED + 1)

    monkeypatch.setattr(bench.flusher, "flush", flush)
    assert await bench.lead(topic(0)) == [0]
    assert (list(bench.table.led()), bench.told) == ([], [])


async def test_a_registration_may_end_while_a_topic_is_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.lead(topic(0, 0, 0))

    async def ending() -> None:
        bench.leadership.resign()

    monkeypatch.setattr(bench.leadership, "_slices", SimpleNamespace(pause_if_due=ending))
    assert await bench.leadership.follow(topic(1, 1, 1)) == [0]
    assert list(bench.table.led()) == []
    assert sorted(index for what, index in bench.told if what == "lost") == [0, 1, 2]


async def test_what_is_offline_is_not_led_and_not_waited_for(bench: Bench) -> None:
    bench.table.offline.add([(ID, 1)])
    assert await bench.lead(topic(0, 0)) == [0]
    await bench.begin(topic(0, 0), 1)
    assert bench.table.get("topic", 1) is None


def replicated(partition_epoch: int = 0, **changes: object) -> Topic:
    """One partition with a follower, broker 2, in leader epoch 3."""
    (state,) = topic(3).partitions
    wanted = {"replicas": (NODE, 2), "isr": ((NODE, REGISTERED), (2, 6)), **changes}
    state = msgspec.structs.replace(state, partition_epoch=partition_epoch, **wanted)
    return Topic(ID, "topic", partitions=(state,))


def all_of_them(*_: object) -> bool:
    return True


def lead_by(bench: Bench) -> Led:
    led = bench.table.get("topic", 0)
    assert led is not None
    return led


async def test_a_suspended_partition_goes_on_in_its_leader_epoch_with_what_it_knew(
    bench: Bench,
) -> None:
    await bench.lead(replicated())
    led = lead_by(bench)
    led.append(build_batch([Record(None, b"value", 0)]), 0)
    bench.leadership.suspend(led)
    assert (bench.table.get("topic", 0), led.is_leading) == (None, False)
    await bench.lead(replicated())
    assert bench.table.get("topic", 0) is None, "an image alone does not end the suspension"
    assert bench.leadership.resume(lambda *_: False) == set()
    assert bench.leadership.resume(all_of_them) == {ID}
    await bench.lead(replicated())
    again = lead_by(bench)
    assert (again.leader_epoch, again.replicas_state, again.is_leading) == (
        3,
        led.replicas_state,
        True,
    )
    assert bench.told == [("led", 0), ("lost", 0), ("led", 0)]
    assert again.fetched(2, BrokerEpoch(6), 1, 0, now_ms=0) is ErrorCode.NONE
    assert again.high_watermark == 1


async def test_a_partition_stays_suspended_while_a_change_of_its_isr_is_in_flight(
    bench: Bench,
) -> None:
    """The change may still be written: its new member could be elected without later commits.

    KIP-497.
    """
    await bench.lead(replicated())
    led = lead_by(bench)
    change = led.isr_change(LAG_MAX_MS + 1 << 40, lambda *_: True)
    assert change is not None
    bench.leadership.suspend(led)
    assert (bench.leadership.resume(all_of_them), bench.leadership.suspended) == (set(), 1)
    led.isr_won(2)
    assert (bench.leadership.resume(all_of_them), bench.leadership.suspended) == ({ID}, 0)
    await bench.lead(replicated(1, isr=((NODE, REGISTERED),), revision=2))
    assert lead_by(bench).replicas_state.state.isr == ((NODE, REGISTERED),)


async def test_what_was_suspended_begins_as_new_in_a_new_leader_epoch(bench: Bench) -> None:
    await bench.lead(replicated())
    led = lead_by(bench)
    bench.leadership.suspend(led)
    bench.leadership.resume(all_of_them)
    await bench.lead(replicated(1, leader_epoch=4))
    assert lead_by(bench).leader_epoch == 4
    assert lead_by(bench).replicas_state is not led.replicas_state


async def test_a_registration_that_ended_resumes_nothing(bench: Bench) -> None:
    await bench.lead(replicated())
    bench.leadership.suspend(lead_by(bench))
    bench.leadership.resign()
    bench.leadership.broker_epoch = BrokerEpoch(REGISTERED)
    assert bench.leadership.resume(all_of_them) == set()
    await bench.lead(replicated())
    assert bench.table.get("topic", 0) is None
