import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.verification import Guard, Guards
from logfleet.records.batch import BatchHeader, parse_header
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode

PRODUCER = 7


def header(sequence: int = 0, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    stamp = ProducerStamp(producer_id, epoch, sequence)
    return parse_header(build_batch([Record(None, b"v", 0)], producer=stamp))


def asked(guards: Guards, batch: BatchHeader, *, adds: bool = True, now_ms: int = 0) -> Guard:
    return guards.ask(batch, adds=adds, now_ms=now_ms)


def test_a_batch_with_its_guard_may_be_appended_and_the_guard_is_gone_afterwards() -> None:
    guards = Guards()
    batch = header()
    guard = asked(guards, batch)
    guards.answered(guard, is_final=False)
    assert guards.refusal(guard, batch, has_batches=False) is None
    guards.appended(batch)
    assert not len(guards)
    assert guards.refusal(guard, batch, has_batches=False) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_for_which_nobody_asked_is_refused() -> None:
    guards = Guards()
    guards.appended(header())
    assert guards.refusal(None, header(), has_batches=True) is ErrorCode.INVALID_TXN_STATE
    asked(guards, header())
    assert guards.refusal(None, header(), has_batches=True) is ErrorCode.INVALID_TXN_STATE


def test_batches_of_one_epoch_share_a_guard_and_those_of_another_do_not() -> None:
    guards = Guards()
    guard = asked(guards, header(3))
    assert asked(guards, header(0)) is guard
    assert asked(guards, header(0, epoch=1)) is not guard
    assert asked(guards, header(0, producer_id=8)) is not guard
    assert len(guards) == 3
    guards.appended(header(0, epoch=1))
    assert len(guards) == 2
    assert guards.refusal(guard, header(0), has_batches=True) is None


@pytest.mark.parametrize(
    "version, marker_epoch, stays",
    [(0, 5, False), (1, 5, False), (2, 5, True), (2, 6, False), (0, 6, False), (0, 4, True)],
)
def test_a_marker_drops_the_guards_of_what_it_ends(version, marker_epoch, stays) -> None:
    guards = Guards()
    batch = header(epoch=5)
    guard = asked(guards, batch)
    guards.marked(PRODUCER + 1, 9, version)
    guards.marked(PRODUCER, marker_epoch, version)
    wanted = None if stays else ErrorCode.INVALID_TXN_STATE
    assert guards.refusal(guard, batch, has_batches=False) is wanted


def test_an_answer_from_before_the_marker_does_not_serve_a_later_question() -> None:
    guards = Guards()
    batch = header()
    before = asked(guards, batch, adds=False)
    guards.marked(PRODUCER, 0, 1)
    after = asked(guards, batch, adds=False)
    assert guards.refusal(before, batch, has_batches=True) is ErrorCode.INVALID_TXN_STATE
    assert guards.refusal(after, batch, has_batches=True) is None


def test_a_later_batch_waits_for_the_lowest_that_asked() -> None:
    guards = Guards()
    guard = asked(guards, header(4), adds=False)
    guards.answered(guard, is_final=False)
    assert asked(guards, header(2), adds=False) is guard
    error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert guards.refusal(guard, header(4), has_batches=True) is error
    assert guards.refusal(guard, header(2), has_batches=True) is None


@pytest.mark.parametrize(
    "adds, has_batches, sequence, is_refused",
    [
        (True, False, 3, True),
        (True, False, 0, False),
        (True, True, 3, False),
        (False, False, 3, False),
    ],
)
def test_a_tv2_producer_without_batches_begins_at_zero(
    adds, has_batches, sequence, is_refused
) -> None:
    guards = Guards()
    batch = header(sequence)
    guard = asked(guards, batch, adds=adds)
    wanted = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_refused else None
    assert guards.refusal(guard, batch, has_batches=has_batches) is wanted


def test_a_final_refusal_drops_the_guard_once_nobody_asks() -> None:
    guards = Guards()
    batch = header()
    guard = asked(guards, batch)
    asked(guards, batch)
    guards.answered(guard, is_final=True)
    assert guards.refusal(guard, batch, has_batches=True) is None
    guards.answered(guard, is_final=True)
    assert not len(guards)
    guards.answered(asked(guards, batch), is_final=False)
    assert len(guards) == 1


def test_guards_of_producers_that_have_gone_expire() -> None:
    guards = Guards()
    guards.answered(asked(guards, header(), now_ms=0), is_final=False)
    guards.answered(asked(guards, header(producer_id=8), now_ms=60), is_final=False)
    asked(guards, header(producer_id=9), now_ms=0)
    guards.expire(99, 100)
    assert len(guards) == 3
    guards.expire(100, 100)
    assert len(guards) == 2
    guards.expire(1_000, 100)
    assert len(guards) == 1, "one still asks"


@given(st.lists(st.tuples(st.sampled_from(["ask", "marker", "append"]), st.integers(0, 2))))
def test_a_guard_serves_exactly_until_its_transaction_begins_or_ends_here(steps) -> None:
    """TV1: epochs stay, so the same producer and epoch asks again and again."""
    guards = Guards()
    alive: dict[int, Guard] = {}
    every: list[Guard] = []
    for step, epoch in steps:
        if step == "ask":
            guard = asked(guards, header(epoch=epoch), adds=False)
            assert alive.setdefault(epoch, guard) is guard
            every.append(guard)
        elif step == "append":
            guards.appended(header(epoch=epoch))
            alive.pop(epoch, None)
        else:
            guards.marked(PRODUCER, epoch, 1)
            alive = {each: guard for each, guard in alive.items() if each > epoch}
    for guard in every:
        refused = guards.refusal(guard, header(epoch=guard.epoch), has_batches=True)
        assert (refused is None) == (alive.get(guard.epoch) is guard)
    assert len(guards) == len(alive)
