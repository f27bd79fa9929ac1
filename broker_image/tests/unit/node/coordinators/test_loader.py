import pytest
from logfleet.records.record import ProducerStamp, Record, build_batch

from broker_image.tests.unit.node.coordinators.counters import Count
from broker_image.tests.unit.node.coordinators.counters_rig import Rig, append, write

pytestmark = pytest.mark.asyncio


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(str(tmp_path))


async def test_records_of_newer_brokers_are_skipped(rig, until, capsys):
    append(rig, build_batch([Record(b"\0\1new", b"\0\0", 1), Record(None, b"", 1)]))
    write(rig, Count("a", 5))
    async with rig.leading(until):
        assert rig.shard.coordinator.totals == {"a": 5}
    assert "counter_record_skipped" in capsys.readouterr().out


async def test_without_rules_of_its_own_a_coordinator_applies_transactional_records_at_once(
    rig, until
):
    producer = ProducerStamp(7, 0, 0, transactional=True)
    write(rig, Count("a", 5), producer=producer)
    ended = ProducerStamp(7, 0, -1, transactional=True)
    append(rig, build_batch([Record(b"\0\0\0\0", b"", 1)], producer=ended, control=True))
    async with rig.leading(until):
        assert rig.shard.coordinator.totals == {"a": 5}
