"""Three brokers and what they replicate."""

import shutil
from pathlib import Path

import pytest
from logfleet.telemetry.decisions import Kind
from logfleet.wire.messages import FetchRequest

from broker_image.tests.unit.controller.running.controller_rig import recorded
from broker_image.tests.unit.node.broker_rig import ask_broker
from broker_image.tests.unit.node.metrics.metric_values import MetricValues, read
from broker_image.tests.unit.node.replication.fleet_rig import fleet_of, until

pytestmark = pytest.mark.asyncio


async def test_what_all_acknowledge_is_on_all_of_them_byte_for_byte(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, 1, 2, 3) as fleet:
        await fleet.create_topic("t", 1, 2, 3)
        for number in range(3):
            answer = await fleet.produce("t", b"%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
        logs = fleet.logs("t")
        assert set(logs) == {1, 2, 3}
        assert logs[1] == logs[2] == logs[3] != b""
        await until(lambda: fleet.high_watermarks("t") == {3})


async def test_a_follower_that_was_away_catches_up_and_is_in_sync_again(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, 1, 2, 3) as fleet:
        await fleet.create_topic("t", 1, 2, 3)
        await fleet.produce("t", b"before")
        await fleet.stop(3)
        await until(lambda: fleet.state("t").isr_ids == [1, 2])
        for number in range(20):
            assert (await fleet.produce("t", b"%d" % number)).error_code == 0
        await fleet.start(3)
        await until(lambda: fleet.state("t").isr_ids == [1, 2, 3])
        assert (3, fleet.brokers[3].image.brokers[3].epoch) in fleet.state("t").isr
        assert fleet.brokers[1].rooms.replication.isr_writer.expands == 1
        logs = fleet.logs("t")
        assert logs[1] == logs[2] == logs[3]
        assert (await fleet.produce("t", b"after")).base_offset == 21
        assert len(set(fleet.logs("t").values())) == 1


async def test_what_happens_to_a_fleet_is_counted_and_reported_with_its_cause(
    tmp_path: Path,
) -> None:
    async def scraped(broker_id: int) -> MetricValues:
        return read(await fleet.brokers[broker_id].opened.observation.sources.text())

    async with fleet_of(tmp_path, 1, 2, 3) as fleet:
        assert fleet.brokers[1].rooms.control.controller.is_controller
        await fleet.create_topic("t", 2, 1, 3)
        await fleet.produce("t", b"one")
        await fleet.stop(2)
        await until(lambda: fleet.state("t").isr_ids == [1, 3])
        await fleet.produce("t", b"two")
        (decision,) = recorded(fleet.brokers[1].decisions, Kind.ELECTION)
        assert decision.cause == "broker 2 leaves: broker 1, which is in sync, leads"
        assert recorded(fleet.brokers[1].decisions, Kind.DRAINING)[0].broker == 2
        await until(lambda: recorded(fleet.brokers[1].decisions, Kind.FENCED))
        said = await scraped(1)
        assert said("logfleet_leader_elections_total") == 1
        assert said("logfleet_fenced_brokers") == 1
        assert said("logfleet_under_replicated_partitions") == 1
        assert said("logfleet_at_min_isr_partitions") == 0
        await fleet.start(2)
        await until(lambda: recorded(fleet.brokers[1].decisions, Kind.ISR_EXPAND))
        said = await scraped(1)
        assert said("logfleet_isr_expands_total") == 1
        assert said("logfleet_under_replicated_partitions") == 0
        assert said("logfleet_fenced_brokers") == 0
        log_bytes = len(fleet.logs("t")[1])
        assert 0 < (said("logfleet_replication_bytes_out_total") or 0) <= 2 * log_bytes
        told_by_3 = await scraped(3)
        assert told_by_3("logfleet_replication_bytes_in_total") == log_bytes
        assert told_by_3("logfleet_replica_lag_max") == 0


async def test_another_leader_goes_on_where_the_first_one_stopped(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, 1, 2, 3) as fleet:
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


async def test_what_only_a_former_leader_had_is_cut_off(tmp_path: Path) -> None:
    """An unclean election: records of the former leader give way to the new leader's."""
    async with fleet_of(tmp_path, 1, 2) as fleet:
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


async def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_there(
    tmp_path: Path,
) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with fleet_of(tmp_path) as fleet:
        await fleet.start(1, 2, **{"replica.selector.class": selector})
        await fleet.create_topic("t", 1, 2)
        await fleet.produce("t", b"a")
        leader, partition = await fleet.led("t")
        topic = FetchRequest.FetchTopic(
            topic_id=partition.topic_id,
            partitions=[FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)],
        )
        asked = FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[topic], rack_id="z2")
        row = (await ask_broker(leader, asked, 18)).responses[0].partitions[0]
        assert row.preferred_read_replica == 2
        row = (await ask_broker(fleet.brokers[2], asked, 18)).responses[0].partitions[0]
        assert (row.error_code, row.high_watermark) == (0, 1)
        assert bytes(row.records) == fleet.logs("t")[1]


@pytest.mark.parametrize("victim", [1, 3], ids=["the leader's", "a follower's"])
async def test_a_broker_whose_disk_was_replaced_by_an_empty_one_is_filled_from_the_others(
    tmp_path: Path, victim: int
) -> None:
    async with fleet_of(tmp_path, 1, 2, 3) as fleet:
        await fleet.create_topic("t", 1, 2, 3)
        await fleet.create_topic("alone", victim)
        assert (await fleet.produce("t", b"before")).error_code == 0
        await fleet.stop(victim)
        shutil.rmtree(tmp_path / str(victim) / "data")
        assert (await fleet.produce("t", b"meanwhile")).error_code == 0
        await fleet.start(victim)
        await until(lambda: fleet.state("t").isr_ids == [1, 2, 3])
        logs = fleet.logs("t")
        assert logs[1] == logs[2] == logs[3]
        broker = fleet.brokers[victim]
        assert broker.rooms.partitions.get("alone", 0) is None, "nobody else has what it held"
        assert len(broker.rooms.partitions.offline) == 1
        assert not list((tmp_path / str(victim) / "data").glob("alone-*"))
        await fleet.stop(victim)
        await fleet.start(victim)
        await until(lambda: fleet.state("t").isr_ids == [1, 2, 3])
        assert len(fleet.brokers[victim].rooms.partitions.offline) == 1, "however often it starts"
