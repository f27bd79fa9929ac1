import pytest
from logfleet.node.coordinators.loader import replay_record
from logfleet.records.batch import parse_header
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import MalformedMessage

from broker_image.tests.unit.node.coordinators.counters import KIND, Count, Counters
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


class Ended(Counters):
    """Remembers how transactions ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[int, bool]] = []

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.ended.append((producer_id, is_commit))


def replayed_control(key: bytes | None) -> list[tuple[int, bool]]:
    coordinator, record = Ended(), Record(key, b"", 1)
    ended = ProducerStamp(7, 0, transactional=True)
    batch = build_batch([record], producer=ended, control=True)
    replay_record(KIND, coordinator, record, parse_header(batch))
    return coordinator.ended


@pytest.mark.parametrize(
    "key,expected",
    [
        (b"\0\0\0\0", [(7, False)]),
        (b"\0\0\0\1", [(7, True)]),
        (b"\0\0\0\2", []),
    ],
    ids=["abort", "commit", "another kind"],
)
async def test_markers_end_transactions(key, expected):
    assert replayed_control(key) == expected


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
async def test_a_control_record_without_a_kind_is_malformed(key):
    with pytest.raises(MalformedMessage):
        replayed_control(key)
