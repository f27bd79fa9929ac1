"""A sync that does not end holds up its own partition; all others, and later images, go on."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from logfleet.controller.running import access as controller_access
from logfleet.log.partition_log import PartitionLog
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.store import Txn
from logfleet.node.broker import Broker
from logfleet.node.partitions import local_partitions
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DeleteTopicsRequest
from structlog.testing import capture_logs

from broker_image.tests.unit.log.gated_files import GatedFiles
from broker_image.tests.unit.node.broker_rig import ask_broker, config, create_topic
from broker_image.tests.unit.node.partitions.topic_rig import T0, append, led
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio

ME = 1


class Rig:
    """A broker with two partitions of topic t. led: (index, leader epoch) of each start to lead."""

    def __init__(self, broker: Broker, files: GatedFiles, path: Path, until: Until) -> None:
        self.broker = broker
        self.files = files
        self.data = path / "data"
        self.until = until
        self.led: list[tuple[int, int]] = []
        broker.rooms.hosting.leadership.on_led.append(self._led)

    def _led(self, partition: LeaderPartition) -> None:
        if partition.topic == "t":
            self.led.append((partition.index, partition.leader_epoch))

    @property
    def topic(self) -> Topic:
        found = self.broker.image.topic("t")
        assert found is not None
        return found

    def partition(self, index: int) -> LeaderPartition | None:
        return self.broker.rooms.partitions.get("t", index)

    def hang(self, *path: str) -> None:
        """Syncs of what lies below do not end until `recover`."""
        self.files.path = str(self.data.joinpath(*path))
        self.files.syncs.clear()

    def recover(self, error: OSError | None = None) -> None:
        """The sync ends, with that error if there is one."""
        self.files.error = error
        self.files.syncs.set()

    async def write_epoch(self, leader_epoch: int) -> int:
        """All partitions are led by this broker in that epoch; the revision that says so."""
        puts = [
            PARTITION.put((self.topic.id, index), state.changed(leader_epoch=leader_epoch))
            for index, state in enumerate(self.topic.partitions)
        ]
        return (await self.broker.opened.stored.world.store.txn(Txn(success=puts))).revision

    async def show(self, image: ClusterImage) -> None:
        """Apply this image to topic t."""
        local = self.broker.rooms.hosting.local
        assert local._subscription is not None
        local._applied.clear()
        local._subscription.publish(image, Changes(topics={self.topic.id}))
        await local._applied.wait()

    def image(self, **changes: Any) -> ClusterImage:
        """As it is, with another state of partition 0."""
        states = list(self.topic.partitions)
        states[0] = msgspec.structs.replace(states[0], **changes)
        topic = msgspec.structs.replace(self.topic, partitions=tuple(states))
        entries = self.broker.image.entries.updated({topic.id: topic})
        return msgspec.structs.replace(self.broker.image, entries=entries)

    def led_by(self, leader: int, leader_epoch: int) -> ClusterImage:
        me = self.topic.partitions[0].isr
        isr = ((2, 9), *me)
        return self.image(replicas=(2, ME), isr=isr, leader=leader, leader_epoch=leader_epoch)

    async def hang_in(self, leader_epoch: int) -> None:
        """Partition 0 is to be led in that epoch, and its disk hangs."""
        self.hang("t-0")
        await self.show(self.led_by(ME, leader_epoch))
        await self.until(lambda: self.files.waiting)
        assert self.partition(0) is None
        self.led.clear()


@pytest_asyncio.fixture
async def rig(tmp_path: Path, until: Until) -> AsyncIterator[Rig]:
    files = GatedFiles()
    async with Broker(config(tmp_path), files) as broker:
        await create_topic(broker, "t", 2)
        try:
            yield Rig(broker, files, tmp_path, until)
        finally:
            files.syncs.set()


async def test_the_other_partitions_of_the_image_and_later_images_go_on(rig: Rig) -> None:
    rig.hang("t-0")
    revision = await rig.write_epoch(7)
    applied = asyncio.ensure_future(rig.broker.rooms.hosting.local.until_applied(revision))
    await rig.until(lambda: rig.led == [(1, 7)])
    await create_topic(rig.broker, "later")
    assert rig.broker.rooms.partitions.get("later", 0) is not None
    await rig.write_epoch(8)
    await rig.until(lambda: (1, 8) in rig.led)
    assert rig.partition(0) is None
    assert rig.broker.rooms.partitions.find("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not applied.done(), "it is not led yet"
    rig.recover()
    await applied
    assert [each for each in rig.led if each[0] == 0] == [(0, 8)]


async def test_it_leads_once_its_sync_ends(rig: Rig) -> None:
    await rig.hang_in(2)
    rig.recover()
    await rig.until(lambda: rig.led == [(0, 2)])
    assert led(rig.broker).epochs.latest == 2


async def test_it_leads_by_the_newest_state_of_that_leader_epoch(rig: Rig) -> None:
    """No later image of the topic may come with the ISR."""
    await rig.hang_in(2)
    newest = rig.led_by(ME, 2)
    isr = rig.topic.partitions[0].isr
    await rig.show(rig.image(replicas=(2, ME), isr=isr, leader=ME, leader_epoch=2))
    assert newest.topic("t").partitions[0].isr != isr  # type: ignore[union-attr]
    rig.recover()
    await rig.until(lambda: rig.led == [(0, 2)])
    partition = rig.partition(0)
    assert partition is not None
    assert partition.replicas_state.state.isr == isr


async def test_it_does_not_lead_if_the_image_has_moved_on(rig: Rig) -> None:
    await rig.hang_in(2)
    await rig.show(rig.led_by(2, 3))
    rig.recover()
    table, topic_id = rig.broker.rooms.partitions, rig.topic.id
    await rig.until(lambda: isinstance(table.replica(topic_id, 0), FollowerPartition))
    followed = table.replica(topic_id, 0)
    assert isinstance(followed, FollowerPartition)
    assert (followed.leader, followed.leader_epoch, rig.led) == (2, 3, [])


@pytest.mark.parametrize("leader, leader_epoch", [(2, 3), (ME, 2)])
async def test_a_sync_that_ends_while_a_newer_image_is_applied_gives_no_role_of_the_older(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, leader: int, leader_epoch: int
) -> None:
    await rig.hang_in(2)
    newer, isr = rig.led_by(leader, leader_epoch), ((3, 9), *rig.topic.partitions[0].isr)
    if leader == ME:
        newer = rig.image(replicas=(3, ME), isr=isr, leader=ME, leader_epoch=2)

    async def sync_ends() -> None:
        rig.recover()
        await rig.until(lambda: not rig.broker.rooms.workers.flusher._running)
        for _ in range(10):  # all that follows from it
            await asyncio.sleep(0)

    monkeypatch.setattr(
        rig.broker.rooms.hosting.following, "_slices", SimpleNamespace(pause_if_due=sync_ends)
    )
    await rig.show(newer)
    await rig.until(lambda: not rig.broker.rooms.hosting.local._pending.indexes(rig.topic.id))
    if leader == ME:
        partition = rig.partition(0)
        assert partition is not None
        assert (partition.replicas_state.state.isr, rig.led) == (isr, [(0, 2)])
    else:
        assert (rig.partition(0), rig.led) == (None, [])


async def test_what_begins_to_follow_while_a_newer_image_is_applied_does_not_begin_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[FollowerPartition] = []
    rig.broker.rooms.hosting.following.on_followed.append(followed.append)
    log, idle = led(rig.broker), asyncio.Event()

    async def until_idle(_: PartitionLog) -> None:
        await idle.wait()

    async def becomes_idle() -> None:
        idle.set()
        for _ in range(10):  # all that follows from it
            await asyncio.sleep(0)

    monkeypatch.setattr(rig.broker.rooms.workers.flusher, "until_idle", until_idle)
    await rig.show(rig.led_by(2, 3))
    monkeypatch.setattr(
        rig.broker.rooms.hosting.following, "_slices", SimpleNamespace(pause_if_due=becomes_idle)
    )
    await rig.show(rig.led_by(2, 3))
    await rig.until(lambda: not rig.broker.rooms.hosting.local._pending.indexes(rig.topic.id))
    assert [(each.leader, each.leader_epoch, each.log) for each in followed] == [(2, 3, log)]


async def test_it_does_not_lead_if_nobody_is_to_lead(rig: Rig) -> None:
    await rig.hang_in(2)
    await rig.show(rig.led_by(-1, 3))
    rig.recover()
    await rig.until(lambda: not rig.broker.rooms.hosting.local._pending.indexes(rig.topic.id))
    assert (rig.led, rig.partition(0)) == ([], None)


async def test_it_leads_in_a_newer_leader_epoch_and_in_no_older_one(rig: Rig) -> None:
    await rig.hang_in(2)
    for leader, leader_epoch in ((2, 3), (ME, 4)):
        await rig.show(rig.led_by(leader, leader_epoch))
    file, on_disk = rig.data / "t-0" / "leader-epoch-checkpoint", []
    rig.broker.rooms.hosting.leadership.on_led.append(
        lambda _: on_disk.append(file.read_text().split()[-2])
    )
    rig.recover()
    await rig.until(lambda: rig.led)
    assert (rig.led, on_disk) == ([(0, 4)], ["4"])


async def test_it_does_not_lead_if_the_registration_is_over(rig: Rig) -> None:
    await rig.hang_in(2)
    rig.broker.rooms.hosting.local.lost_registration()
    rig.recover()
    await rig.until(lambda: not rig.broker.rooms.hosting.local._pending.indexes(rig.topic.id))
    assert rig.led == []


@pytest.mark.parametrize("moves_on", [False, True])
async def test_an_error_of_the_sync_fails_the_directory(rig: Rig, *, moves_on: bool) -> None:
    """Even if the partition is not to be led any more."""
    await rig.hang_in(2)
    if moves_on:
        await rig.show(rig.led_by(-1, 3))
    rig.recover(OSError(errno.EIO, "it was told to"))
    await rig.until(lambda: rig.broker.rooms.disks.log_dirs.failed)
    assert (rig.topic.id, 0) in rig.broker.rooms.partitions.offline
    assert rig.led == []


async def test_what_is_not_to_be_led_any_more_is_not_tried_again(rig: Rig) -> None:
    await rig.hang_in(2)
    await rig.show(rig.led_by(-1, 3))
    rig.recover(OSError(errno.ENOSPC, "it was told to"))
    await rig.until(lambda: not rig.broker.rooms.hosting.local._pending.indexes(rig.topic.id))
    assert rig.broker.rooms.partitions.unstarted == set()
    assert not rig.broker.rooms.disks.log_dirs.failed


async def delete_topic(broker: Broker) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    answer = await ask_broker(broker, request, 5)
    assert [row.error_code for row in answer.responses] == [0]


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_topic_that_is_deleted_meanwhile_holds_nobody_up_and_goes_once_its_sync_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, is_made_again: bool
) -> None:
    monkeypatch.setattr(controller_access, "SEEN_S_MAX", 0.01)
    append(led(rig.broker), 5)
    await rig.hang_in(2)
    old = rig.topic.id
    await delete_topic(rig.broker)
    if is_made_again:
        before = rig.broker.image.topic_count()
        making = asyncio.ensure_future(create_topic(rig.broker, "t", 2))
        await rig.until(lambda: rig.broker.image.topic_count() > before)
        await rig.until(lambda: rig.led == [(1, 0)])
    await create_topic(rig.broker, "later")
    assert rig.broker.image.deleted, "it is not done"
    assert (rig.data / "t-0").exists()
    assert rig.broker.rooms.partitions.replica(old, 0) is None
    rig.recover()
    await rig.until(lambda: not rig.broker.image.deleted)
    assert rig.broker.rooms.partitions.replica(old, 0) is None
    if is_made_again:
        await making
        assert (led(rig.broker).log_end_offset, (0, 2) in rig.led) == (0, False)
    else:
        assert not (rig.data / "t-0").exists()
    assert list(rig.data.glob("*-stray")) == []


async def test_a_topic_that_is_deleted_before_its_log_could_be_made_gets_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log waits for that of a topic of the same name, which was deleted before."""
    monkeypatch.setattr(controller_access, "SEEN_S_MAX", 0.01)
    await rig.hang_in(2)
    await delete_topic(rig.broker)
    making = asyncio.ensure_future(create_topic(rig.broker, "t", 2))
    await rig.until(lambda: rig.led == [(1, 0)])
    await delete_topic(rig.broker)
    await rig.until(lambda: not list(rig.broker.rooms.partitions))
    rig.recover()
    await rig.until(lambda: not rig.broker.image.deleted)
    await making
    assert list(rig.data.glob("t-?")) == []
    assert list(rig.data.glob("*-stray")) == []
    assert list(rig.broker.rooms.partitions) == []


async def test_a_partition_that_is_moved_to_others_meanwhile_loses_its_log_once_its_sync_ends(
    rig: Rig,
) -> None:
    await rig.hang_in(2)
    for _ in range(2):  # a later image of the topic does not make it forget
        await rig.show(rig.image(replicas=(2,), isr=((2, 9),), leader=2, leader_epoch=3))
    await create_topic(rig.broker, "later")
    assert rig.broker.rooms.disks.log_dirs.log_of(T0) is not None
    rig.recover()
    await rig.until(lambda: rig.broker.rooms.disks.log_dirs.log_of(T0) is None)
    assert rig.broker.rooms.partitions.replica(rig.topic.id, 0) is None
    assert rig.led == []


async def test_a_partition_that_is_moved_away_and_back_meanwhile_keeps_its_log(rig: Rig) -> None:
    log = led(rig.broker)
    append(log, 3)
    await rig.hang_in(2)
    await rig.show(rig.image(replicas=(2,), isr=((2, 9),), leader=2, leader_epoch=3))
    await rig.show(rig.led_by(2, 4))
    rig.recover()
    table, topic_id = rig.broker.rooms.partitions, rig.topic.id
    await rig.until(lambda: isinstance(table.replica(topic_id, 0), FollowerPartition))
    await rig.until(lambda: not rig.broker.rooms.hosting.local._pending.indexes(topic_id))
    replica = table.replica(topic_id, 0)
    assert replica is not None
    assert (replica.leader_epoch, replica.log, replica.log.log_end_offset) == (4, log, 3)
    assert rig.broker.rooms.disks.log_dirs.log_of(T0) is log


async def test_requests_wait_for_what_they_change_and_not_for_a_disk_that_hangs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_access, "SEEN_S_MAX", 3600.0)
    rig.hang("t-0")
    await rig.write_epoch(7)
    await rig.until(lambda: rig.files.waiting)
    await create_topic(rig.broker, "later")
    assert rig.broker.rooms.partitions.get("later", 0) is not None


async def test_a_partition_that_begins_slowly_is_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_partitions, "SLOW_S", 0.0)
    with capture_logs() as lines:
        await rig.hang_in(2)
        await rig.until(lambda: "partition_begins_slowly" in [line["event"] for line in lines])
    report = next(line for line in lines if line["event"] == "partition_begins_slowly")
    assert (report["topic"], report["partition"]) == ("t", 0)


async def test_a_whole_disk_that_hangs_holds_up_no_partition_of_another(
    tmp_path: Path, until: Until
) -> None:
    """More of its partitions start than there are threads, and than parallel epoch writes."""
    files = GatedFiles()
    dirs = f"{tmp_path / 'data' / 'one'},{tmp_path / 'data' / 'two'}"
    async with Broker(config(tmp_path, **{"log.dirs": dirs}), files) as broker:
        await create_topic(broker, "t", 24)
        rig = Rig(broker, files, tmp_path, until)
        one = {int(path.name.removeprefix("t-")) for path in (rig.data / "one").glob("t-*")}
        assert len(one) == 12
        try:
            rig.hang("one", "t-")
            await rig.write_epoch(7)
            await until(lambda: {index for index, _ in rig.led} == set(range(24)) - one)
            rig.recover()
            await until(lambda: len(rig.led) == 24)
        finally:
            files.syncs.set()
