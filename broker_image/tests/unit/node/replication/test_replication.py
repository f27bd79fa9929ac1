"""Three brokers and what they replicate."""

from pathlib import Path

import pytest

from broker_image.tests.unit.node.replication.fleet_rig import fleet_of, until

pytestmark = pytest.mark.asyncio


async def test_what_all_acknowledge_is_on_all_of_them_byte_for_byte(
    tmp_path: Path, monkeypatch
) -> None:
    async with fleet_of(tmp_path, monkeypatch, 1, 2, 3) as fleet:
        await fleet.create_topic("t", 1, 2, 3)
        for number in range(3):
            answer = await fleet.produce("t", b"%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
        logs = fleet.logs("t")
        assert set(logs) == {1, 2, 3}
        assert logs[1] == logs[2] == logs[3] != b""
        await until(lambda: fleet.high_watermarks("t") == {3})


async def test_a_follower_that_was_away_catches_up_and_is_in_sync_again(
    tmp_path: Path, monkeypatch
) -> None:
    async with fleet_of(tmp_path, monkeypatch, 1, 2, 3) as fleet:
        await fleet.create_topic("t", 1, 2, 3)
        await fleet.produce("t", b"before")
        await fleet.stop(3)
        await until(lambda: fleet.state("t").isr_ids == [1, 2])
        for number in range(20):
            assert (await fleet.produce("t", b"%d" % number)).error_code == 0
        await fleet.start(3)
        await until(lambda: fleet.state("t").isr_ids == [1, 2, 3])
        assert (3, fleet.brokers[3].image.brokers[3].epoch) in fleet.state("t").isr
        assert fleet.brokers[1].isr_writer.expands == 1
        logs = fleet.logs("t")
        assert logs[1] == logs[2] == logs[3]
        assert (await fleet.produce("t", b"after")).base_offset == 21
        assert len(set(fleet.logs("t").values())) == 1


async def test_another_leader_goes_on_where_the_first_one_stopped(
    tmp_path: Path, monkeypatch
) -> None:
    async with fleet_of(tmp_path, monkeypatch, 1, 2, 3) as fleet:
        await fleet.create_topic("t", 1, 2, 3)
        await fleet.produce("t", b"one")
        epoch = fleet.state("t").leader_epoch
        await fleet.stop(1)
        await until(lambda: fleet.state("t").leader == 2)
        assert fleet.state("t").leader_epoch > epoch
        answer = await fleet.produce("t", b"two")
        assert (answer.error_code, answer.base_offset) == (0, 1)
        await fleet.start(1)
        await until(lambda: fleet.state("t").isr_ids == [1, 2, 3])
        logs = fleet.logs("t")
        assert logs[1] == logs[2] == logs[3]


async def test_what_only_a_former_leader_had_is_cut_off(tmp_path: Path, monkeypatch) -> None:
    """An unclean election: what was acknowledged by the one alone gives way to what the other wrote at the same offsets."""
    async with fleet_of(tmp_path, monkeypatch, 1, 2) as fleet:
        await fleet.create_topic("t", 1, 2)
        await fleet.produce("t", b"both")
        await fleet.stop(2)
        await until(lambda: fleet.state("t").isr_ids == [1])
        for value in (b"lost", b"lost too"):
            await fleet.produce("t", value, acks=1)
        longer = fleet.logs("t")[1]
        await fleet.stop(1)
        await fleet.start(2)
        await until(lambda: 2 in fleet.any.image.brokers and fleet.any.image.brokers[2].is_active)
        state, me = fleet.state("t"), fleet.any.image.brokers[2]
        await fleet.write(
            "t", leader=2, isr=((2, me.epoch),), elr=(), leader_epoch=state.leader_epoch + 1
        )
        answer = await fleet.produce("t", b"other", acks=1)
        assert answer.base_offset == 1
        shorter = fleet.logs("t")[2]
        assert not longer.startswith(shorter)
        await fleet.start(1)
        await until(lambda: fleet.state("t").isr_ids == [1, 2])
        assert fleet.logs("t") == {1: shorter, 2: shorter}
