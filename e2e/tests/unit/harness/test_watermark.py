import pandas as pd

from e2e.harness.watermark import appended_counts

HOUR = pd.Timedelta(1, "h")


def batches(*minutes):
    """One micro-batch per list of minutes after midnight."""
    day = pd.Timestamp("2013-01-01")
    return [
        pd.DataFrame(
            {
                "event_time": pd.to_datetime([day + pd.Timedelta(m, "min") for m in group]),
                "origin": "JFK",
            }
        )
        for group in minutes
    ]


def outcome(*minutes):
    model = appended_counts(batches(*minutes), HOUR, HOUR)
    hours = list(zip(model.counts["window_start"].dt.hour, model.counts["count"], strict=True))
    return hours, model.dropped, model.still_open


def test_a_window_comes_out_when_the_watermark_passes_its_end():
    assert outcome([10], [119]) == ([], 0, 2)
    assert outcome([10], [120]) == ([(0, 1)], 0, 1)


def test_a_row_is_judged_by_the_watermark_of_the_batch_before_its_own():
    """Batch 2 runs with the watermark that batch 1 made, but drops by the one before it."""
    assert outcome([200], [10]) == ([(0, 1)], 0, 1)
    assert outcome([200], [201], [10]) == ([], 1, 2)


def test_the_greatest_event_time_within_a_batch_makes_nothing_of_it_late():
    assert outcome([300, 0]) == ([(0, 1)], 0, 1)


def test_an_empty_batch_moves_the_watermark_that_judges():
    assert outcome([200], [], [10]) == ([], 1, 1)
