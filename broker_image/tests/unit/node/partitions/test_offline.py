import pytest
from logfleet.node.partitions import offline
from logfleet.node.partitions.offline import OfflinePartitions
from logfleet.wire import uuids

ONE, TWO = bytes(range(16)), bytes(range(1, 17))


def test_on_change_is_called_when_the_set_changes_and_only_then() -> None:
    partitions = OfflinePartitions()
    counts: list[int] = []
    partitions.on_change.append(lambda: counts.append(len(partitions)))
    partitions.add([(ONE, 0), (ONE, 1), (TWO, 0)])
    partitions.add([(ONE, 1)])
    partitions.add([])
    assert (ONE, 1) in partitions
    assert counts == [3]
    partitions.remove_topic(ONE)
    partitions.remove_topic(ONE)
    assert counts == [3, 1]
    assert (ONE, 1) not in partitions


def test_on_change_is_called_too_for_what_is_online_again() -> None:
    partitions = OfflinePartitions()
    counts: list[int] = []
    partitions.on_change.append(lambda: counts.append(len(partitions)))
    partitions.add([(ONE, 0), (TWO, 0)])
    partitions.remove([(ONE, 0), (ONE, 1)])
    partitions.remove([(ONE, 0)])
    assert counts == [2, 1]
    assert (ONE, 0) not in partitions


def test_of_very_many_not_all_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = OfflinePartitions()
    partitions.add([(TWO, 7), (ONE, 1), (ONE, 0)])
    assert partitions.by_topic() == {uuids.to_text(ONE): (0, 1), uuids.to_text(TWO): (7,)}
    monkeypatch.setattr(offline, "OFFLINE_REPORTED_MAX", 1)
    assert partitions.by_topic() == {uuids.to_text(ONE): (0,)}
