from logfleet.replication.waiters import (
    COMMITTED,
    LOG_START,
    LOW_WATERMARK,
    NEXT_COMMITTED,
    STABLE,
    WRITTEN,
    Waiter,
    Waiters,
)


class Parked(Waiter):
    """Keeps its notifications; leaves at the first if it has the registry."""

    def __init__(self, leaves: Waiters | None = None) -> None:
        self.news: list[object] = []
        self._leaves = leaves

    def _add(self, news: object) -> None:
        self.news.append(news)
        if self._leaves is not None:
            self._leaves.remove(self)

    def written(self, size: int) -> None:
        self._add(("written", size))

    def committed(self, size: int) -> None:
        self._add(("committed", size))

    def stable(self, size: int) -> None:
        self._add(("stable", size))

    def log_start_moved(self) -> None:
        self._add("log start")

    def low_watermark_moved(self) -> None:
        self._add("low watermark")

    def role_ended(self) -> None:
        self._add("end")


def everything(waiters: Waiters) -> None:
    waiters.written(1)
    waiters.committed(2)
    waiters.stable(3)
    waiters.log_start_moved()
    waiters.low_watermark_moved()
    waiters.role_ended()


ALL_NEWS = [("written", 1), ("committed", 2), ("stable", 3), "log start", "low watermark", "end"]


def test_a_waiter_is_notified_of_its_interests_and_of_the_end() -> None:
    waiters = Waiters()
    interests = (WRITTEN, COMMITTED, STABLE, LOG_START, LOW_WATERMARK)
    parked = [Parked() for _ in interests]
    for waiter, interest in zip(parked, interests, strict=True):
        waiters.add(waiter, interest)
    everything(waiters)
    assert [each.news for each in parked] == [[news, "end"] for news in ALL_NEWS[:5]]
    assert len(waiters) == 5


def test_interests_are_added_and_each_is_notified_once() -> None:
    waiters, parked = Waiters(), Parked()
    waiters.add(parked, COMMITTED | LOG_START)
    waiters.add(parked, COMMITTED | WRITTEN)
    waiters.add(parked, LOW_WATERMARK | STABLE)
    everything(waiters)
    assert parked.news == ALL_NEWS
    assert len(waiters) == 1


def test_a_waiter_that_left_is_not_notified() -> None:
    waiters, parked, never = Waiters(), Parked(), Parked()
    waiters.remove(never)
    waiters.add(parked, WRITTEN | COMMITTED | LOG_START | LOW_WATERMARK)
    waiters.remove(parked)
    waiters.remove(never)
    everything(waiters)
    assert parked.news == []
    assert len(waiters) == 0


def test_waiters_may_leave_while_they_are_notified() -> None:
    waiters = Waiters()
    parked = [Parked(waiters) for _ in range(3)]
    for each in parked:
        waiters.add(each, COMMITTED)
    everything(waiters)
    assert [each.news for each in parked] == [[("committed", 2)]] * 3


def test_a_waiter_need_not_care_for_what_it_does_not_wait_for() -> None:
    waiters = Waiters()
    waiters.add(Waiter(), WRITTEN | COMMITTED | LOG_START | LOW_WATERMARK)
    everything(waiters)


def test_a_waiter_for_the_next_commit_is_notified_once_until_it_asks_again() -> None:
    waiters, parked = Waiters(), Parked()
    waiters.add(parked, STABLE | NEXT_COMMITTED)
    assert waiters.of_stable
    waiters.next_committed(4)
    waiters.next_committed(5)
    waiters.add(parked, NEXT_COMMITTED)
    waiters.next_committed(6)
    assert parked.news == [("committed", 4), ("committed", 6)]
    waiters.remove(parked)
    assert not waiters.of_stable
