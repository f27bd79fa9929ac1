import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from logfleet.io.timers import TICK_S, Alarm, TimerWheel

pytestmark = pytest.mark.asyncio


@contextmanager
def at_one_time() -> Iterator[float]:
    """The loop's clock stands still at this time (seconds).

    What is added is due in its order, however long adding takes.
    """
    loop = asyncio.get_running_loop()
    now = loop.time()
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(loop, "time", lambda: now)
        yield now


async def test_callbacks_come_in_order_and_never_early() -> None:
    loop = asyncio.get_running_loop()
    wheel = TimerWheel()
    called: list[tuple[int, float]] = []
    done = asyncio.Event()
    with at_one_time() as start:
        for delay in (3, 1, 2, 0):
            wheel.add(
                delay * TICK_S, partial(lambda d: called.append((d, loop.time() - start)), delay)
            )
        wheel.add(5 * TICK_S, done.set)
    await done.wait()
    assert [delay for delay, _ in called] == [0, 1, 2, 3]
    assert all(at >= delay * TICK_S for delay, at in called)


async def test_a_cancelled_callback_is_never_called_and_an_idle_wheel_does_not_tick() -> None:
    wheel = TimerWheel()
    done = asyncio.Event()
    cancelled = wheel.add(0, lambda: pytest.fail("was cancelled"))
    wheel.add(2 * TICK_S, done.set)
    cancelled.cancel()
    cancelled.cancel()
    await done.wait()
    assert wheel._ticking is None
    again = asyncio.Event()
    wheel.add(0, again.set)
    await again.wait()


async def test_long_waits_that_are_cancelled_leave_no_slots_behind() -> None:
    wheel = TimerWheel()
    kept = wheel.add(3600, lambda: None)
    for seconds in range(100):
        wheel.add(3600 + seconds, lambda: None).cancel()
    assert len(wheel._slots) == 1
    kept.cancel()
    assert not wheel._slots
    wheel._tick()
    assert wheel._ticking is None


async def test_a_callback_may_cancel_what_is_due_with_it() -> None:
    wheel = TimerWheel()
    called: list[int] = []
    done = asyncio.Event()
    with at_one_time():
        both = [wheel.add(0, lambda: call(0)), wheel.add(0, lambda: call(1))]
        wheel.add(2 * TICK_S, done.set)

    def call(number: int) -> None:
        called.append(number)
        both[1 - number].cancel()

    await done.wait()
    assert len(called) == 1


async def test_a_callback_may_add_and_cancel_others() -> None:
    wheel = TimerWheel()
    done = asyncio.Event()

    def first() -> None:
        victim.cancel()
        wheel.add(0, second)

    def second() -> None:
        wheel.add(4 * TICK_S, done.set)

    with at_one_time():
        victim = wheel.add(3 * TICK_S, lambda: pytest.fail("was cancelled"))
        wheel.add(0, first)
    await done.wait()


async def test_a_stopped_wheel_forgets_everything() -> None:
    loop = asyncio.get_running_loop()
    wheel = TimerWheel()
    wheel.add(0, lambda: pytest.fail("was stopped"))
    wheel.stop()
    done = asyncio.Event()
    loop.call_later(3 * TICK_S, done.set)
    await done.wait()


async def test_after_a_long_stall_everything_due_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = TimerWheel()
    called: list[int] = []
    for delay in (1, 500, 2_000_000):
        wheel.add(delay * TICK_S, partial(called.append, delay))
    real = wheel._loop.time
    monkeypatch.setattr(wheel._loop, "time", lambda: real() + 1_000_000 * TICK_S)
    wheel._tick()
    assert called == [1, 500]
    wheel.stop()


async def test_an_alarm_rings_at_the_earliest_of_its_deadlines_and_then_at_the_next() -> None:
    loop = asyncio.get_running_loop()
    rung: list[float] = []
    done = asyncio.Event()
    start = loop.time()
    deadlines = [start + 0.03, start + 0.01, start + 0.02]

    def ring(now: float) -> float | None:
        rung.extend(each for each in deadlines if each <= now)
        assert rung, "never early"
        deadlines[:] = [each for each in deadlines if each > now]
        if not deadlines:
            done.set()
        return min(deadlines, default=None)

    alarm = Alarm(ring)
    for each in deadlines:
        alarm.set(each)
    await done.wait()
    assert rung == sorted(rung)
    assert len(rung) == 3


async def test_an_alarm_that_is_cancelled_does_not_ring_until_it_is_set_again() -> None:
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()
    alarm = Alarm(lambda _: rung.set())
    alarm.cancel()
    alarm.set(loop.time())
    alarm.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not rung.is_set()
    alarm.set(loop.time())
    await rung.wait()
