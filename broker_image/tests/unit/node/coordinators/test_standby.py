"""What a follower has decoded is what the next leader starts with; groups show it by properties too."""

import time

import pytest
from logfleet.node.coordinators import standby
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.log.log_rig import truncate
from broker_image.tests.unit.node.coordinators.counters import Count
from broker_image.tests.unit.node.coordinators.counters_rig import Rig, read, write

pytestmark = pytest.mark.asyncio

TAKEOVER_S_MAX = 1.0


@pytest.fixture
def rig(tmp_path, monkeypatch) -> Rig:
    monkeypatch.setattr(standby, "ROUND_S", 0)
    return Rig(str(tmp_path))


async def test_a_standby_takes_over_with_what_it_has_decoded(rig, until, monkeypatch):
    """Only what was not committed for the follower is left to read."""
    records = 10_000
    for total in range(0, records, 100):
        write(rig, *(Count(f"k{number}", total) for number in range(100)))
    async with rig.running():
        follower = rig.follow()
        (state,) = rig.runtime.standby.states()
        await until(lambda: state.offset == records)
        write(rig, Count("a", 7))
        follower.end()
        read_log, offsets = rig.log.read, []

        def read_and_record(offset, *more):
            offsets.append(offset)
            return read_log(offset, *more)

        monkeypatch.setattr(rig.log, "read", read_and_record)
        begun = time.monotonic()
        rig.lead()
        await until(lambda: rig.is_active)
        assert time.monotonic() - begun < TAKEOVER_S_MAX
        assert offsets == [records]
        assert rig.shard.coordinator is state.coordinator
        assert read(rig.shard).response == (ErrorCode.NONE, 7)
        assert list(rig.runtime.standby.states()) == []


async def test_a_standby_whose_log_is_truncated_below_what_it_decoded_decodes_again(rig, until):
    write(rig, Count("a", 1))
    write(rig, Count("a", 2))
    async with rig.running():
        rig.follow()
        (state,) = rig.runtime.standby.states()
        await until(lambda: state.offset == 2)
        truncate(rig.log, 1)
        rig.runtime.standby.truncated(rig.log, 1)
        await until(lambda: state.offset == 1)
        assert state.coordinator.totals == {"a": 1}
