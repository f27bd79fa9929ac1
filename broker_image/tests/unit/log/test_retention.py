from functools import partial

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.retention import SegmentAge, plan_retention

FOREVER = LogConfig(retention_ms=-1, retention_bytes=-1)


def segments(*ages):
    """(end offset, size, largest timestamp) each."""
    return [SegmentAge(end, size, partial(int, timestamp)) for end, size, timestamp in ages]


LOG = segments((10, 100, 1000), (20, 100, 2000), (30, 100, 3000))


def plan(log=LOG, config=FOREVER, now=10_000, high_watermark=30, log_start=0, count_max=10):
    return plan_retention(
        log,
        config,
        now_ms=now,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        count_max=count_max,
    ).count


@pytest.mark.parametrize("unlimited", [-1, -2, -(2**63)])
def test_without_limits_nothing_goes(unlimited):
    config = LogConfig(retention_ms=unlimited, retention_bytes=unlimited)
    assert plan(now=10**15, config=config) == 0


@pytest.mark.parametrize("now, gone", [(2000, 0), (2001, 1), (3001, 2), (4000, 2), (4001, 3)])
def test_a_segment_goes_when_its_newest_record_is_too_old(now, gone):
    assert plan(config=LogConfig(retention_ms=1000), now=now) == gone


def test_a_future_timestamp_pins_its_segment_and_those_after_it():
    log = segments((10, 100, 1000), (20, 100, 10**9), (30, 100, 3000))
    assert plan(log, LogConfig(retention_ms=1000)) == 1


@pytest.mark.parametrize(
    "limit, gone", [(300, 0), (299, 0), (201, 0), (200, 1), (100, 2), (99, 2), (0, 3)]
)
def test_the_oldest_go_as_long_as_more_than_the_limit_stays(limit, gone):
    assert plan(config=LogConfig(retention_ms=-1, retention_bytes=limit)) == gone


@pytest.mark.parametrize("high_watermark, gone", [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_only_what_is_below_the_high_watermark_goes(high_watermark, gone):
    assert plan(config=LogConfig(retention_ms=1000), high_watermark=high_watermark) == gone


def test_an_empty_active_segment_stays():
    log = segments((10, 100, 1000), (10, 0, 1000))
    assert plan(log, LogConfig(retention_ms=1000), high_watermark=10) == 1


@pytest.mark.parametrize("log_start, gone", [(0, 0), (9, 0), (10, 1), (29, 2), (30, 2)])
def test_segments_below_the_log_start_go_whatever_the_policy(log_start, gone):
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=0)
    assert plan(config=config, log_start=log_start) == gone


def test_timestamps_are_asked_only_as_far_as_needed():
    def never():
        raise AssertionError

    log = [*segments((10, 100, 9999)), SegmentAge(20, 100, never)]
    assert plan(log, LogConfig(retention_ms=1000)) == 0
    assert plan(log, FOREVER) == 0


@pytest.mark.parametrize(
    "config", [LogConfig(retention_ms=1000), LogConfig(retention_ms=-1, retention_bytes=0)]
)
def test_no_more_than_count_max_are_removed_at_once(config):
    assert plan(config=config, count_max=2) == 2


def test_no_more_are_asked_for_their_time_than_may_go():
    def never():
        raise AssertionError("asked")

    log = [*segments((10, 100, 1000), (20, 100, 2000)), SegmentAge(30, 100, never)]
    assert plan(log, LogConfig(retention_ms=1000), count_max=2) == 2


def test_the_reason_names_the_key():
    why = plan_retention(
        LOG,
        LogConfig(retention_ms=5),
        now_ms=9999,
        high_watermark=30,
        log_start_offset=0,
        count_max=10,
    ).reason
    assert "retention.ms=5" in why
