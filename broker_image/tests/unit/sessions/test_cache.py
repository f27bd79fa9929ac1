import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.sessions.cache import EVICTION_MS, SessionCache
from logfleet.sessions.fetch_session import EPOCH_MAX, FetchSession
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest

OLD = EVICTION_MS + 1


def cache(slots: int = 2, **limits: Any) -> SessionCache:
    return SessionCache(slots, iter(range(1, 10_000)).__next__, **limits)


def wanted(*indices: int) -> dict[Any, FetchRequest.FetchPartition]:
    return {("t", index): FetchRequest.FetchPartition(partition=index) for index in indices}


def create(
    kept: SessionCache, size: int = 1, *, now_ms: int = 0, privileged: bool = False
) -> FetchSession | None:
    return kept.create(wanted(*range(size)), by_id=False, privileged=privileged, now_ms=now_ms)


def made(kept: SessionCache, size: int = 1, **more: Any) -> FetchSession:
    session = create(kept, size, **more)
    assert session is not None
    return session


def begin(
    kept: SessionCache, session_id: int, epoch: int, *, now_ms: int = 0, **more: Any
) -> FetchSession | ErrorCode | None:
    request = FetchRequest(session_id=session_id, session_epoch=epoch)
    given = {"wanted": {}, "forgotten": [], "by_id": False, **more}
    return kept.begin(request, given.pop("wanted"), given.pop("forgotten"), now_ms=now_ms, **given)


def test_a_session_goes_on_epoch_by_epoch() -> None:
    kept = cache()
    session = made(kept)
    assert session.epoch == 1
    assert begin(kept, session.id, 1) is session
    assert begin(kept, session.id, 2, wanted=wanted(4)) is session
    assert list(session.partitions) == [("t", 0), ("t", 4)]
    assert kept.partitions == 2
    session.epoch = EPOCH_MAX
    assert begin(kept, session.id, EPOCH_MAX) is session
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_it_names(epoch) -> None:
    kept = cache()
    session = made(kept)
    assert begin(kept, 99, epoch) is None
    assert begin(kept, session.id, epoch) is None
    assert session.is_closed
    assert (len(kept), kept.partitions) == (0, 0)


def test_what_is_wrong_with_a_request_is_said() -> None:
    kept = cache()
    session = made(kept)
    assert begin(kept, 99, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (2, -2, EPOCH_MAX):
        assert begin(kept, session.id, epoch) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(kept, session.id, 1, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert begin(kept, session.id, 1) is session


def test_a_session_without_partitions_ends_unless_it_began_so() -> None:
    kept = cache()
    session = made(kept, 2)
    assert begin(kept, session.id, 1, forgotten=[("t", 0)]) is session
    assert begin(kept, session.id, 2, forgotten=[("t", 1)]) is None
    assert session.is_closed
    empty = made(kept, 0)
    assert begin(kept, empty.id, 1, wanted=wanted(1)) is empty


def test_a_request_that_waits_is_answered_when_another_goes_on(monkeypatch) -> None:
    kept = cache()
    session = made(kept)
    ended = []
    monkeypatch.setattr(session, "end_parked", lambda: ended.append(session.epoch))
    begin(kept, session.id, 1)
    assert ended == [2]


def test_without_slots_there_are_no_sessions() -> None:
    assert create(cache(0)) is None


def test_sessions_hold_so_many_partitions_at_most() -> None:
    kept = cache(9, partitions_max=10)
    session = made(kept, 6)
    assert create(kept, 5) is None
    other = made(kept, 4)
    assert begin(kept, session.id, 1, wanted=wanted(5)) is session
    error = begin(kept, session.id, 2, wanted=wanted(6))
    assert error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session.is_closed
    assert (len(kept), kept.partitions) == (1, 4)
    assert not other.is_closed


def test_ids_are_not_given_twice() -> None:
    ids = iter([0, 5, 5, 0, 6])
    kept = SessionCache(9, ids.__next__)
    assert [made(kept).id for _ in range(2)] == [5, 6]


class TestMakingRoom:
    def test_nobody_goes_for_a_consumer_while_all_are_young(self) -> None:
        kept = cache(1)
        made(kept, 1)
        assert create(kept, 9, now_ms=EVICTION_MS) is None

    def test_what_is_stale_goes_even_if_it_is_large(self) -> None:
        kept = cache(2)
        stale, used = made(kept, 9), made(kept, 1)
        assert begin(kept, used.id, 1, now_ms=OLD) is used
        made(kept, 1, now_ms=OLD)
        assert (stale.is_closed, used.is_closed, kept.evictions) == (True, False, 1)

    def test_a_larger_session_displaces_the_smallest_that_is_old(self) -> None:
        kept = cache(2)
        small, large = made(kept, 2), made(kept, 3)
        for session in (small, large):
            begin(kept, session.id, 1, now_ms=OLD)
        assert create(kept, 1, now_ms=OLD) is None
        made(kept, 3, now_ms=OLD)
        assert (small.is_closed, large.is_closed) == (True, False)

    def test_a_follower_displaces_consumers_and_never_the_reverse(self) -> None:
        kept = cache(1)
        consumer = made(kept, 9)
        follower = made(kept, 1, privileged=True)
        assert consumer.is_closed
        assert create(kept, 9, privileged=True) is None  # young
        begin(kept, follower.id, 1, now_ms=OLD)
        assert create(kept, 9, now_ms=OLD) is None
        assert create(kept, 1, now_ms=OLD, privileged=True) is None  # not worth more
        assert create(kept, 2, now_ms=OLD, privileged=True) is not None
        assert follower.is_closed

    def test_a_session_that_has_ended_makes_no_room_later(self) -> None:
        kept = cache(1)
        ended = made(kept, 1)
        begin(kept, ended.id, 1, now_ms=OLD)
        assert create(kept, 1, now_ms=OLD) is None  # had it been larger, `ended` had gone
        kept.remove(ended.id)
        empty = made(kept, 0, now_ms=OLD)
        assert create(kept, 9, now_ms=OLD) is None
        assert (len(kept), empty.is_closed, kept.evictions) == (1, False, 0)


class NaiveCache:
    """Kafka's rules on a plain list: [id, privileged, size, created, used, since when it may be displaced]."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.rows: list[dict[str, Any]] = []

    def create(self, new_id: int, size: int, now_ms: int, *, privileged: bool) -> bool:
        if len(self.rows) >= self.slots and not self.evict(size, now_ms, privileged=privileged):
            return False
        row = {"id": new_id, "privileged": privileged, "size": size, "created": now_ms}
        self.rows.append(row)
        self.touch(row, size, now_ms)
        return True

    def touch(self, row: dict[str, Any], size: int, now_ms: int) -> None:
        row |= {"size": size, "used": now_ms, "old": now_ms - row["created"] > EVICTION_MS}
        self.rows.remove(row)
        self.rows.append(row)

    def evict(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        if not self.rows:
            return False
        victim = min(self.rows, key=lambda row: row["used"])
        if now_ms - victim["used"] <= EVICTION_MS:
            candidates = [
                row for row in self.rows if row["old"] or (privileged and not row["privileged"])
            ]
            if not candidates:
                return False
            worth = lambda row: (row["privileged"], row["size"], row["id"])  # noqa: E731
            victim = min(candidates, key=worth)
            if (privileged, size, 0) < worth(victim):
                return False
        self.rows.remove(victim)
        return True


@given(seed=st.integers(0, 2**32), slots=st.integers(0, 4))
def test_room_is_made_by_kafkas_rules(seed, slots) -> None:
    chance = random.Random(seed)
    kept, naive = cache(slots), NaiveCache(slots)
    now_ms = 0
    sessions: dict[int, FetchSession] = {}
    for _ in range(60):
        now_ms += chance.choice([0, 1000, EVICTION_MS // 2, OLD])
        if naive.rows and chance.random() < 0.6:
            row = chance.choice(naive.rows)
            session = sessions[row["id"]]
            grown = wanted(*range(chance.randrange(4)))
            naive.touch(row, len({**session.partitions, **grown}), now_ms)
            assert begin(kept, session.id, session.epoch, wanted=grown, now_ms=now_ms) is session
        else:
            size, privileged = chance.randrange(1, 4), chance.random() < 0.3
            new = create(kept, size, now_ms=now_ms, privileged=privileged)
            new_id = -1 if new is None else new.id
            assert naive.create(new_id, size, now_ms, privileged=privileged) is (new is not None)
            if new is not None:
                sessions[new_id] = new
        assert {row["id"] for row in naive.rows} == {
            held for held, session in sessions.items() if not session.is_closed
        }
        assert len(kept) == len(naive.rows)
        assert kept.partitions == sum(row["size"] for row in naive.rows)
