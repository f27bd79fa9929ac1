import pytest
from logfleet.log.directories.free_space import (
    FLOOR_BYTES,
    DiskRoom,
    DiskStep,
    disk_step,
    wanted_reserve,
)

MIB = 1024 * 1024
RESERVE = 16 * MIB
TOTAL = 1024 * MIB


@pytest.mark.parametrize(
    "free, held, is_full, step",
    [
        (100 * MIB, RESERVE, False, DiskStep.NONE),
        (8 * MIB, RESERVE, False, DiskStep.NONE),
        (8 * MIB - 1, RESERVE, False, DiskStep.STOP),
        (0, RESERVE, False, DiskStep.STOP),
        # at a start, before the reserve is made
        (24 * MIB, 0, False, DiskStep.NONE),
        (24 * MIB - 1, 0, False, DiskStep.STOP),
        # full: the reserve has been given up
        (16 * MIB, 0, True, DiskStep.NONE),
        (32 * MIB - 1, 0, True, DiskStep.NONE),
        (32 * MIB, 0, True, DiskStep.RESUME),
        # a write found no room although there is some: a quota of the file system, say
        (TOTAL, RESERVE, True, DiskStep.RESUME),
    ],
)
def test_records_stop_and_go_on(free, held, is_full, step):
    assert disk_step(DiskRoom(TOTAL, free, held), RESERVE, is_full=is_full) is step


def test_without_a_reserve_the_last_bytes_are_kept() -> None:
    assert disk_step(DiskRoom(TOTAL, FLOOR_BYTES), 0, is_full=False) is DiskStep.NONE
    assert disk_step(DiskRoom(TOTAL, FLOOR_BYTES - 1), 0, is_full=False) is DiskStep.STOP
    assert disk_step(DiskRoom(TOTAL, 2 * FLOOR_BYTES - 1), 0, is_full=True) is DiskStep.NONE
    assert disk_step(DiskRoom(TOTAL, 2 * FLOOR_BYTES), 0, is_full=True) is DiskStep.RESUME


def test_what_made_records_go_on_does_not_stop_them() -> None:
    """After RESUME the reserve is made, and the next look finds nothing to do."""
    resumed = DiskRoom(TOTAL, 32 * MIB - RESERVE, RESERVE)
    assert disk_step(resumed, RESERVE, is_full=False) is DiskStep.NONE


def test_a_small_disk_keeps_a_small_reserve() -> None:
    assert wanted_reserve(RESERVE, TOTAL) == RESERVE
    assert wanted_reserve(RESERVE, 64 * MIB) == 64 * MIB // 20
    assert wanted_reserve(0, TOTAL) == 0


def test_the_reserve_counts_as_free() -> None:
    assert DiskRoom(100, 10, 10).used_ratio == pytest.approx(0.8)
    assert DiskRoom(0, 0).used_ratio == 0.0
