from logfleet.replication.uncommitted import COUNT_MAX, TOGETHER_BYTES, Uncommitted


def test_bytes_are_reported_once_with_the_end_of_their_batch() -> None:
    uncommitted = Uncommitted()
    for end_offset, size in ((10, 100), (20, 200), (30, 300)):
        uncommitted.add(end_offset, size)
    assert [uncommitted.take(each) for each in (9, 20, 20, 30)] == [0, 300, 0, 300]
    assert not uncommitted


def test_what_is_never_committed_takes_no_memory_for_each_batch() -> None:
    """As acks=1 while fewer than min.insync.replicas are in sync."""
    uncommitted = Uncommitted()
    count, size = 20 * COUNT_MAX, 1_000
    for offset in range(count):
        uncommitted.add(offset + 1, size)
    assert len(uncommitted) <= COUNT_MAX + count * size // TOGETHER_BYTES + 1
    assert uncommitted.take(COUNT_MAX - 1) == (COUNT_MAX - 1) * size
    assert uncommitted.take(count) == (count - COUNT_MAX + 1) * size


def test_a_log_that_was_truncated_has_nothing_to_commit() -> None:
    uncommitted = Uncommitted()
    uncommitted.add(10, 100)
    uncommitted.clear()
    assert uncommitted.take(10) == 0
