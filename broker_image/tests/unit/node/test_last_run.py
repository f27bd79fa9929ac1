"""How a broker's last run ended, and whether the next registration trusts its disk (KIP-966)."""

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.types import LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.unit.controller.cluster_rig import Cluster

pytestmark = pytest.mark.asyncio

REGISTERED, ACTIVE, SHOWN, NOTED = range(4)
"""The controller makes it active, the broker's image shows that, its directory names the epoch."""


class Machine:
    """Broker 1 and its disk, in a fleet whose other broker is down."""

    def __init__(self) -> None:
        self.cluster, self.disk = Cluster(), SimDisk(1)
        self.cluster.start(1, 2)
        self.cluster.create("t", replication_factor=2, configs={"min.insync.replicas": "2"})
        self.cluster.stop(1)
        self.cluster.stop(2)

    async def begin_life(self) -> LogDirs:
        self.disk.locks.clear()
        dirs = LogDirs(OpenFiles(self.disk), [])
        list(dirs.open_each(("/a",), "cluster", 1))
        await dirs.load(lambda _: LogConfig(), 1_700_000_000_000, 1)
        unclean = not dirs.lost_nothing
        self.cluster.register(1, unclean=unclean, previous_epoch=dirs.previous_epoch)
        return dirs

    async def live(self, reached: int, *, is_killed: bool) -> None:
        dirs = await self.begin_life()
        if reached >= ACTIVE:
            self.cluster.converge()
        if reached >= SHOWN:
            dirs.settle(self.cluster.image.brokers[1].epoch)
        if reached >= NOTED:
            dirs.record_running()
        if not is_killed:
            for log_dir in dirs:
                log_dir.close({})
        self.cluster.stop(1)

    async def is_believed(self) -> bool:
        """Whether broker 1 is still an eligible leader when the controller has made it active."""
        uuid = self.cluster.uuid("t")
        both = PartitionValue(
            (1, 2), (), NO_LEADER, LeaderEpoch(9), PartitionEpoch(9), 2, elr=(1, 2), last_leader=2
        )
        self.cluster.put(PARTITION.key((uuids.from_text(uuid), 0)), both)
        await self.begin_life()
        self.cluster.converge()
        (state,) = self.cluster.topic("t").partitions
        assert state.leader in {1, NO_LEADER}
        return state.leader == 1


@pytest.mark.parametrize(
    "reached, is_killed, is_believed",
    [
        (REGISTERED, True, True),
        (REGISTERED, False, True),
        (ACTIVE, True, False),
        (ACTIVE, False, False),
        (SHOWN, True, False),
        (SHOWN, False, True),
        (NOTED, True, True),
        (NOTED, False, True),
    ],
)
async def test_the_disk_is_believed_if_it_names_the_last_life_that_was_active(
    reached: int, *, is_killed: bool, is_believed: bool
) -> None:
    machine = Machine()
    await machine.live(NOTED, is_killed=False)
    await machine.live(reached, is_killed=is_killed)
    assert await machine.is_believed() is is_believed


@pytest.mark.parametrize("reached", range(4))
async def test_one_life_that_is_not_believed_is_not_held_against_the_next(reached: int) -> None:
    machine = Machine()
    await machine.live(NOTED, is_killed=True)
    await machine.live(reached, is_killed=True)
    await machine.live(REGISTERED, is_killed=True)
    await machine.live(NOTED, is_killed=True)
    assert await machine.is_believed()
