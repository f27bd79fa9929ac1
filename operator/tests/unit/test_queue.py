from hypothesis import given
from hypothesis import strategies as st
from logfleet_operator.queue import BACKOFF_MAX_S, BACKOFF_MIN_S, WorkQueue


def test_a_key_added_often_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(1000):
        queue.add("a", 0)
    assert queue.take(0) == "a"
    queue.done("a")
    assert queue.take(0) is None
    assert queue.added == 1


def test_a_key_added_while_worked_on_comes_once_more_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0)
    assert queue.take(0) == "a"
    queue.add("a", 1)
    queue.add("b", 2)
    assert queue.take(2) == "b"
    assert queue.take(2) is None
    queue.done("a")
    assert queue.take(2) == "a"


def test_the_earliest_time_counts_in_whatever_order_it_is_said() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0, after=30)
    assert queue.take(10) is None
    assert queue.next_due() == 30
    queue.add("a", 10, after=1)
    queue.add("a", 10, after=60)
    assert queue.next_due() == 11
    assert queue.take(11) == "a"
    queue.done("a")
    assert queue.take(100) is None


def test_failures_come_back_later_and_later_until_success() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0)
    now, delays = 0.0, []
    for _ in range(12):
        assert queue.take(now) == "a"
        delays.append(queue.failed("a", now))
        assert queue.take(now) is None
        now += delays[-1]
    assert delays[0] == BACKOFF_MIN_S
    assert delays == sorted(delays)
    assert delays[-1] == BACKOFF_MAX_S
    assert queue.take(now) == "a"
    queue.done("a")
    queue.add("a", now)
    assert queue.take(now) == "a"
    assert queue.failed("a", now) == BACKOFF_MIN_S


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "later", "take", "done"])))
)
def test_every_added_key_is_taken_and_none_by_two(steps: list[tuple[str, str]]) -> None:
    queue: WorkQueue[str] = WorkQueue()
    now, working, owed = 0.0, set(), set()
    for key, step in steps:
        now += 1
        if step in {"add", "later"}:
            queue.add(key, now, after=5 if step == "later" else 0)
            owed.add(key)
        elif step == "take":
            taken = queue.take(now)
            if taken is not None:
                assert taken not in working
                working.add(taken)
                owed.discard(taken)
        elif key in working:
            queue.done(key)
            working.discard(key)
        assert queue.working == working
    for key in working:
        queue.done(key)
    while (taken := queue.take(now + 10)) is not None:
        owed.discard(taken)
        queue.done(taken)
    assert not owed
    assert len(queue) == 0
