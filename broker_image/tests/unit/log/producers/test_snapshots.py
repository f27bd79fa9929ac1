from logfleet.log.producers.snapshots import superfluous_snapshots


def test_snapshots_at_segments_and_the_newest_stay():
    assert superfluous_snapshots([0, 10, 12, 15, 20], {0, 10, 30}, 25) == [12, 15]


def test_snapshots_beyond_the_log_go():
    assert superfluous_snapshots([0, 10, 26], {0, 10}, 25) == [26]


def test_one_in_between_goes_when_a_segment_has_a_newer_one():
    assert superfluous_snapshots([0, 12, 20], {0, 20}, 25) == [12]


def test_without_snapshots_nothing_goes():
    assert superfluous_snapshots([], {0}, 25) == []
