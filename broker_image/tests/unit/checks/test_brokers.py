"""Each finding of brokers: in a fleet that has it, and not in a healthy one."""

import pytest
from logfleet.checks import brokers
from logfleet.checks.finding import Severity
from logfleet.checks.snapshot import Broker, Directory, Readings, Snapshot
from logfleet.controller.brokers.feature_level import FeatureLevel

from broker_image.tests.unit.checks.fleets import APIS, GIB, broker, fleet, found, remedies


def with_third(**fields: object) -> Snapshot:
    return fleet(brokers=(broker(1), broker(2), broker(3, **fields)))


def test_a_failed_directory_is_found() -> None:
    failed = with_third(directories=(Directory("/data", "KAFKA_STORAGE_ERROR"),))
    assert found(brokers.failed_directory, failed) == [
        ("broker 3", "/data has failed (KAFKA_STORAGE_ERROR)")
    ]
    assert found(brokers.failed_directory, with_third(directories=None)) == []


@pytest.mark.parametrize(
    "usable, severity",
    [(21, None), (20, Severity.WARNING), (6, Severity.WARNING), (5, Severity.ERROR)],
)
def test_a_disk_is_nearly_full_at_80_percent_and_full_at_95(
    usable: int, severity: Severity | None
) -> None:
    filled = with_third(directories=(Directory("/data", None, 100 * GIB, usable * GIB),))
    severities = [each.severity for each in brokers.full_disk.findings(filled)]
    assert severities == ([severity] if severity else [])
    if severity is Severity.ERROR:
        assert found(brokers.full_disk, filled) == [
            ("broker 3", "the disk of /data is 95% full, 5.0 GiB left")
        ]
        assert remedies(brokers.full_disk, filled) == ["logfleet log-dirs --broker 3"]


def test_a_disk_without_a_size_is_not_judged() -> None:
    assert found(brokers.full_disk, with_third(directories=(Directory("/data"),))) == []
    assert found(brokers.full_disk, with_third(directories=None)) == []


def test_descriptors_that_run_out_are_found() -> None:
    short = with_third(readings=Readings(7_000.0, 10_000.0))
    assert found(brokers.few_descriptors, short) == [
        ("broker 3", "7,000 of 10,000 file descriptors are in use")
    ]
    assert found(brokers.few_descriptors, with_third(readings=None)) == []
    assert found(brokers.few_descriptors, with_third(readings=Readings())) == []


@pytest.mark.parametrize("ahead_s, sentence", [(5.1, "5 s ahead"), (-9.9, "10 s behind")])
def test_a_clock_that_differs_from_most_is_found(ahead_s: float, sentence: str) -> None:
    wrong = with_third(clock_ahead_s=ahead_s)
    assert found(brokers.clocks_differ, wrong) == [("broker 3", f"its clock is {sentence}")]


def test_one_clock_does_not_differ_from_any() -> None:
    alone = fleet(brokers=(broker(1, clock_ahead_s=100.0), broker(2, clock_ahead_s=None)))
    assert found(brokers.clocks_differ, alone) == []


def test_brokers_of_another_version_are_found() -> None:
    newer = {**APIS, 2: (1, 11)}
    assert found(brokers.versions_differ, with_third(apis=newer)) == [
        ("broker 3", "unlike the others: another version of the software")
    ]
    two = [broker(each, apis=newer) for each in (1, 2)]
    old = [broker(each) for each in (3, 4, 5)]
    assert found(brokers.versions_differ, fleet(brokers=(*two, *old))) == [
        ("brokers 1 and 2", "unlike the others: another version of the software")
    ]
    assert found(brokers.versions_differ, with_third(apis=None)) == []


def test_a_feature_level_that_is_behind_is_found() -> None:
    behind = fleet(level=FeatureLevel(1, 3))
    assert found(brokers.level_behind, behind) == [
        ("fleet", "feature level 1, and all brokers support 3")
    ]
    assert remedies(brokers.level_behind, behind) == ["logfleet features upgrade 3"]
    assert found(brokers.level_behind, fleet(level=FeatureLevel(3, 3))) == []


def test_a_cordoned_broker_is_found() -> None:
    closed = with_third(config={"cordoned.log.dirs": "*"})
    assert found(brokers.cordoned, closed) == [("broker 3", "cordoned: it gets no new replicas")]
    assert remedies(brokers.cordoned, closed) == ["logfleet uncordon 3"]
    assert found(brokers.cordoned, with_third(config=None)) == []


def test_a_transaction_that_hangs_is_found() -> None:
    late = with_third(readings=Readings(late_transactions=2.0))
    assert found(brokers.late_transactions, late) == [
        ("broker 3", "transactions hang in 2 partitions that it leads")
    ]
    nothing_known = fleet(brokers=(Broker(1), broker(2, readings=Readings())))
    assert found(brokers.late_transactions, nothing_known) == []
