from logfleet.sessions import reader_session
from logfleet.sessions.reader_session import ReaderSession

A, B, C = ((b"topic", index) for index in range(3))


def begun(*keys) -> ReaderSession:
    session = ReaderSession()
    for key in keys:
        session.want(key)
    assert session.take() == (list(keys), [])
    session.accept(7)
    return session


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    session = ReaderSession()
    session.want(A)
    session.want(B)
    assert (session.id, session.epoch) == (0, 0)
    assert session.take() == ([A, B], [])
    session.accept(7)
    assert (session.id, session.epoch) == (7, 1)


def test_later_ones_name_what_moved_and_what_is_new() -> None:
    session = begun(A, B)
    assert session.take() == ([], [])
    session.accept(7)
    assert session.epoch == 2
    session.want(B)
    session.want(C)
    assert session.take() == ([B, C], [])


def test_what_is_wanted_no_more_is_forgotten_once() -> None:
    session = begun(A, B)
    session.unwant(A)
    session.unwant(C)
    assert session.take() == ([], [A])
    assert session.take() == ([], [])
    assert session
    session.unwant(B)
    assert not session


def test_what_the_leader_was_not_told_need_not_be_forgotten() -> None:
    session = begun(A)
    session.want(B)
    session.unwant(B)
    assert session.take() == ([], [])


def test_what_is_wanted_again_is_named_and_not_forgotten() -> None:
    """A leader takes what is named first and then what is forgotten (FetchSession.update)."""
    session = begun(A)
    session.unwant(A)
    session.want(A)
    assert session.take() == ([A], [])


def test_a_session_that_is_lost_begins_anew_with_everything() -> None:
    session = begun(A, B)
    session.unwant(A)
    session.want(C)
    session.restart()
    assert (session.id, session.epoch) == (0, 0)
    assert session.take() == ([C, B], [])


def test_a_leader_without_room_is_told_everything_each_time() -> None:
    session = ReaderSession()
    session.want(A)
    session.take()
    session.accept(0)
    assert (session.id, session.epoch) == (0, 0)
    assert not session.has_more
    assert session.take() == ([A], [])


def test_many_partitions_are_named_a_part_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(reader_session, "NAMED_MAX", 2)
    session = ReaderSession()
    for key in (A, B, C):
        session.want(key)
    assert session.take() == ([A, B], [])
    assert session.has_more
    session.accept(7)
    assert session.take() == ([C], [])


def test_without_a_session_those_that_waited_come_first(monkeypatch) -> None:
    monkeypatch.setattr(reader_session, "NAMED_MAX", 2)
    session = ReaderSession()
    for key in (A, B, C):
        session.want(key)
    session.take()
    session.accept(0)
    named, _ = session.take()
    assert named[0] == C
    assert named[1] in (A, B)


def test_one_partition_that_is_all_there_is_to_say_is_taken_alone() -> None:
    session = begun(A, B)
    assert session.take_only() is None
    session.want(B)
    assert session.take_only() == B
    assert session.take() == ([], [])
    session.want(A)
    session.unwant(B)
    assert session.take_only() is None
    assert session.take() == ([A], [B])
    session.want(A)
    session.want(C)
    assert session.take_only() is None
    assert session.take() == ([A, C], [])


def test_without_a_session_everything_is_named() -> None:
    session = ReaderSession()
    session.want(A)
    assert session.take_only() is None
    assert session.take() == ([A], [])


def test_what_was_taken_alone_is_named_again_in_the_next_session() -> None:
    session = begun(A)
    session.want(B)
    assert session.take_only() == B
    session.restart()
    named, forgotten = session.take()
    assert (sorted(named), forgotten) == ([A, B], [])
