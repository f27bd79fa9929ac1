"""Rates and tokens by hand, and against a plain model of Kafka's ring of samples."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.quotas.rates import THROTTLE_MS_MAX, RateMeter, TokenBucket, Windows

KAFKA = Windows()
NOW = 1_000_000


def rate_of(*events: tuple[int, float], windows: Windows = KAFKA) -> tuple[float, int]:
    meter = RateMeter(windows)
    for at, value in events:
        meter.record(value, NOW + at)
    return meter.measure(NOW + events[-1][0])


@pytest.mark.parametrize(
    "events, rate, window_ms",
    [
        # the first event ever: ten windows before it count as empty
        ([(0, 500.0)], 50.0, 10_000),
        ([(0, 500.0), (400, 500.0)], 1_000 / 10.4, 10_400),
        # the second window has begun: nine empty ones and 1.2 s
        ([(0, 500.0), (1_200, 700.0)], 1_200 / 10.2, 10_200),
        # full: the span begins with the oldest sample
        ([(n * 1_000, 100.0) for n in range(11)], 1_100 / 10, 10_000),
        ([*((n * 1_000, 100.0) for n in range(11)), (10_900, 100.0)], 1_200 / 10.9, 10_900),
        # the first sample's last event is 11 s old, and it is left out
        ([(n * 1_000, 100.0) for n in range(12)], 1_100 / 10, 10_000),
        # 10.9 s old, and it is kept although its window began 11 s ago
        ([(0, 1.0), (100, 100.0), *((n * 1_000, 100.0) for n in range(1, 12))], 1_201 / 11, 11_000),
        # after a long rest everything before is forgotten
        ([(0, 5_000.0), (60_000, 10.0)], 1.0, 10_000),
    ],
)
def test_the_rate_is_that_of_the_windows(
    events: list[tuple[int, float]], rate: float, window_ms: int
) -> None:
    measured, measured_ms = rate_of(*events)
    assert measured == pytest.approx(rate)
    assert measured_ms == window_ms


def test_what_is_taken_back_leaves_the_rate_as_it_was() -> None:
    meter = RateMeter(KAFKA)
    meter.record(100, NOW)
    before = meter.measure(NOW + 50)
    meter.record(900, NOW + 50)
    meter.record(-900, NOW + 50)
    assert meter.measure(NOW + 50) == before
    assert meter.recorded_ms == NOW + 50


def test_a_client_is_held_until_the_rate_is_back_at_the_quota() -> None:
    """Ten times the quota in the first request: 10,000 bytes over 10 s against 100 a second, so another 90 s."""
    meter = RateMeter(KAFKA)
    meter.record(10_000, NOW)
    assert meter.throttle_ms(100, NOW) == 90_000
    assert meter.throttle_ms(1_000, NOW) == 0  # exactly the quota
    assert meter.throttle_ms(999.999, NOW) == 0  # 0.01 ms
    assert meter.throttle_ms(999.9, NOW) == 1


def test_a_throttle_time_fits_into_its_field() -> None:
    meter = RateMeter(KAFKA)
    meter.record(1e18, NOW)
    assert meter.throttle_ms(1, NOW) == THROTTLE_MS_MAX


def test_one_window_alone_has_a_rate_too() -> None:
    assert rate_of((0, 3.0), windows=Windows(1, 1_000)) == (3_000.0, 1)
    assert rate_of((0, 3.0), (500, 3.0), windows=Windows(1, 1_000)) == (12.0, 500)


def test_a_full_bucket_holds_what_all_windows_allow() -> None:
    bucket = TokenBucket(KAFKA)
    assert bucket.tokens(5, NOW) == 55


def test_a_burst_is_paid_for_and_forgiven() -> None:
    """Kafka's own example: quota 5, 100 windows of 1 s; a burst of 560 leaves -60, which takes 12 s."""
    bucket = TokenBucket(Windows(100, 1_000))
    bucket.take(560, 5, NOW)
    assert bucket.tokens(5, NOW) == -60
    assert bucket.throttle_ms(5, NOW) == 12_000
    assert bucket.throttle_ms(5, NOW + 11_999) == 1
    assert bucket.throttle_ms(5, NOW + 12_000) == 0
    assert bucket.tokens(5, NOW + 13_000) == pytest.approx(5)
    assert bucket.recorded_ms == NOW


def test_a_smaller_quota_makes_a_smaller_bucket() -> None:
    bucket = TokenBucket(KAFKA)
    bucket.take(1, 100, NOW)
    assert bucket.tokens(1, NOW) == 11


class Ring:
    """Kafka's SampledStat and Rate as they are written there: samples in a ring, none ever removed."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[list[Fraction | int]] = []  # start, last event, total
        self.current = 0

    def record(self, value: int, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, Fraction(0)])
        if now - self.samples[self.current][0] >= self.windows.length_ms:
            self.current = (self.current + 1) % (self.windows.count + 1)
            fresh: list[Fraction | int] = [now, now, Fraction(0)]
            if self.current >= len(self.samples):
                self.samples.append(fresh)
            else:
                self.samples[self.current] = fresh
        self.samples[self.current][1] = now
        self.samples[self.current][2] += value

    def measure(self, now: int) -> tuple[Fraction, int]:
        for sample in self.samples:
            if now - sample[1] >= self.windows.count * self.windows.length_ms:
                sample[:] = [now, now, Fraction(0)]
        elapsed = now - int(min(sample[0] for sample in self.samples))
        full = elapsed // self.windows.length_ms
        if full < self.windows.count - 1:
            elapsed += (self.windows.count - 1 - full) * self.windows.length_ms
        return sum((Fraction(s[2]) for s in self.samples), Fraction(0)) / Fraction(
            elapsed, 1000
        ), elapsed


@given(
    st.integers(2, 12),
    st.sampled_from([1_000, 2_000]),
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 3_000), st.integers(0, 40_000)), st.integers(0, 1 << 20)
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_rates_are_those_of_kafkas_ring(
    count: int, length_ms: int, events: list[tuple[int, int]]
) -> None:
    windows = Windows(count, length_ms)
    meter, ring = RateMeter(windows), Ring(windows)
    now = NOW
    for rest, value in events:
        now += rest
        meter.record(value, now)
        ring.record(value, now)
        rate, window_ms = meter.measure(now)
        expected, expected_ms = ring.measure(now)
        assert rate == pytest.approx(float(expected))
        assert window_ms == expected_ms
