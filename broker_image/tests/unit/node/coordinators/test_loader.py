import pytest
from logfleet.node.coordinators.loader import replay_marker
from logfleet.records.record import ProducerStamp, Record, build_batch

from broker_image.tests.unit.node.coordinators.counters import Count, Counters
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
    marker = Record(b"\0\0\0\0", b"\0\0\0\0\0\0", 1)
    append(rig, build_batch([marker], producer=ended, control=True))
    async with rig.leading(until):
        assert rig.shard.coordinator.totals == {"a": 5}


class Ended(Counters):
    """Remembers how transactions ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[int, bool]] = []

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.ended.append((producer_id, is_commit))


@pytest.mark.parametrize(
    "kind,expected", [(0, [(7, False)]), (1, [(7, True)]), (2, [])], ids=["abort", "commit", "none"]
)
async def test_markers_end_transactions_and_other_control_records_do_not(kind, expected):
    coordinator = Ended()
    stamp = ProducerStamp(7, 0, transactional=True)
    control = [Record(bytes((0, 0, 0, kind)), b"\0\0\0\0\0\5", 1)]
    before = build_batch([Record(b"k", b"v", 1)])
    batches = bytes(before + build_batch(control, producer=stamp, control=True))
    replay_marker(coordinator, batches, len(before))
    assert coordinator.ended == expected


async def test_a_malformed_control_record_is_no_marker():
    coordinator = Ended()
    stamp = ProducerStamp(7, 0, transactional=True)
    batch = build_batch([Record(b"\0\0", b"", 1)], producer=stamp, control=True)
    replay_marker(coordinator, bytes(batch), 0)
    assert coordinator.ended == []
