import pytest
from logfleet.metadata.attempts import Attempts, GrowingPause
from logfleet.metadata.store import StoreRefused, StoreUnavailable, UnknownOutcome

UNKNOWN = UnknownOutcome("no answer")
UNAVAILABLE = StoreUnavailable("away")
REFUSED = StoreRefused("no permission")


def test_each_pause_is_twice_as_long_up_to_the_longest() -> None:
    pause = GrowingPause((1_000, 6_000))
    assert [pause.next_ms() for _ in range(5)] == [1_000, 2_000, 4_000, 6_000, 6_000]


@pytest.mark.parametrize(
    "errors, pauses_ms",
    [
        ([UNKNOWN] * 8, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]),
        ([UNKNOWN, UNAVAILABLE, UNKNOWN], [50, 100, 200]),
        ([REFUSED] * 8, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]),
        ([UNKNOWN, UNKNOWN, REFUSED, UNKNOWN, UNKNOWN], [50, 100, 1_000, 50, 100]),
        ([REFUSED, UNKNOWN, REFUSED], [1_000, 50, 2_000]),
    ],
)
def test_pauses_grow_by_the_kind_of_failure(errors, pauses_ms) -> None:
    attempts = Attempts()
    assert [attempts.failed(error) for error in errors] == pauses_ms
    assert attempts.refusals == errors.count(REFUSED)


@pytest.mark.parametrize(
    "errors, may_be_applied",
    [
        ([], False),
        ([UNAVAILABLE], False),
        ([REFUSED], False),
        ([UNKNOWN], True),
        ([UNKNOWN, UNAVAILABLE, REFUSED], True),
    ],
)
def test_a_write_may_be_applied_after_one_unknown_outcome(errors, may_be_applied) -> None:
    attempts = Attempts()
    for error in errors:
        attempts.failed(error)
    assert attempts.may_be_applied is may_be_applied
