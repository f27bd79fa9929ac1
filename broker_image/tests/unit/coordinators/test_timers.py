import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.coordinators.timers import STALE_ENTRIES_MIN, Deadline, Timers

Log = list[object]
ALL = 10_000


def recording(name: object) -> Deadline[Log]:
    return Deadline(lambda log: log.append(name))


def timers_and_log() -> tuple[Timers[Log], Log]:
    return Timers(), []


def test_a_deadline_expires_once_at_its_time():
    timers, log = timers_and_log()
    timers.schedule(recording("a"), 100)
    timers.expire_until(99, log, ALL)
    assert log == []
    timers.expire_until(100, log, ALL)
    timers.expire_until(1000, log, ALL)
    assert log == ["a"]
    assert timers.next_ms() is None


def test_a_deadline_moved_later_comes_up_early_and_is_put_back():
    timers, log = timers_and_log()
    deadline = recording("a")
    timers.schedule(deadline, 100)
    timers.schedule(deadline, 300)
    assert timers.next_ms() == 100
    timers.expire_until(200, log, ALL)
    assert log == []
    assert timers.next_ms() == 300
    timers.expire_until(300, log, ALL)
    assert log == ["a"]


def test_a_deadline_moved_earlier_expires_at_the_earlier_time_only():
    timers, log = timers_and_log()
    deadline = recording("a")
    timers.schedule(deadline, 300)
    timers.schedule(deadline, 100)
    timers.expire_until(500, log, ALL)
    assert log == ["a"]


def test_a_cleared_deadline_does_not_expire():
    timers, log = timers_and_log()
    deadline = recording("a")
    timers.schedule(deadline, 100)
    timers.cancel(deadline)
    timers.cancel(deadline)
    timers.expire_until(500, log, ALL)
    assert log == []
    assert len(timers) == 0


def test_deadlines_expire_in_order_of_time_then_of_setting():
    timers, log = timers_and_log()
    for name, at_ms in (("c", 300), ("a", 100), ("b1", 200), ("b2", 200)):
        timers.schedule(recording(name), at_ms)
    timers.expire_until(300, log, ALL)
    assert log == ["a", "b1", "b2", "c"]


def test_a_deadline_may_set_another_while_it_expires():
    timers, log = timers_and_log()
    second = recording("second")

    def first(log):
        log.append("first")
        timers.schedule(second, 100)

    timers.schedule(Deadline(first), 100)
    timers.expire_until(100, log, ALL)
    assert log == ["first", "second"]


def test_deadlines_that_come_and_go_do_not_pile_up():
    timers, _ = timers_and_log()
    kept = recording("kept")
    timers.schedule(kept, 50)
    for _ in range(10 * STALE_ENTRIES_MIN):
        deadline = recording("gone")
        timers.schedule(deadline, 1_000_000)
        timers.cancel(deadline)
    assert len(timers) == 1
    assert len(timers._heap) <= 2 * STALE_ENTRIES_MIN + 2


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["set", "clear", "tick"]), st.integers(0, 4), st.integers(0, 50)),
    max_size=60,
)


@given(ACTIONS)
def test_it_behaves_like_a_plain_dict_of_deadlines(actions):
    """The model: name -> time; a tick expires everything at or before now, once."""
    (timers, log), now_ms = timers_and_log(), 0
    deadlines = [recording(name) for name in range(5)]
    model: dict[int, int] = {}
    for action, name, amount in actions:
        match action:
            case "set":
                timers.schedule(deadlines[name], now_ms + amount)
                model[name] = now_ms + amount
            case "clear":
                timers.cancel(deadlines[name])
                model.pop(name, None)
            case "tick":
                now_ms += amount
                due = {name for name, at_ms in model.items() if at_ms <= now_ms}
                log.clear()
                timers.expire_until(now_ms, log, ALL)
                assert len(log) == len(due)
                assert set(log) == due
                for expired in due:
                    del model[expired]
        assert len(timers) == len(model)
        upcoming = timers.next_ms()
        if model:
            assert upcoming is not None
            assert upcoming <= min(model.values())


@pytest.mark.parametrize("now_ms", [0, 10])
def test_nothing_set_means_nothing_to_wait_for(now_ms):
    timers, log = timers_and_log()
    timers.expire_until(now_ms, log, ALL)
    assert timers.next_ms() is None
    assert log == []


def test_a_crowd_expires_in_slices():
    timers, log = timers_and_log()
    for number in range(5):
        timers.schedule(recording(number), 10)
    timers.expire_until(10, log, 2)
    assert log == [0, 1]
    assert timers.next_ms() == 10
    timers.expire_until(10, log, ALL)
    assert log == [0, 1, 2, 3, 4]


def test_after_clear_none_expires_and_each_can_be_set_again():
    timers, log = timers_and_log()
    moved, cancelled, kept = recording("moved"), recording("cancelled"), recording("kept")
    timers.schedule(moved, 300)
    timers.schedule(moved, 100)
    timers.schedule(cancelled, 100)
    timers.cancel(cancelled)
    timers.schedule(kept, 200)
    timers.clear()
    assert (len(timers), timers.next_ms()) == (0, None)
    timers.expire_until(1000, log, ALL)
    assert log == []
    timers.schedule(kept, 1100)
    timers.expire_until(1100, log, ALL)
    assert log == ["kept"]
    assert len(timers) == 0
