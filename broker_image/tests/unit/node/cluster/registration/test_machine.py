"""Each transition of a registration's machine."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from logfleet.metadata.image import Broker, ClusterImage, Fence
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, DRAINING, FENCED, BrokerValue
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.metadata.store import (
    Get,
    KeyValue,
    LeaseNotFound,
    Put,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    TxnResult,
    UnknownOutcome,
    absent,
    modified_at,
    value_is,
)
from logfleet.node.cluster.registration.errors import IdTaken, LevelTooHigh
from logfleet.node.cluster.registration.events import (
    Accepted,
    Active,
    Fail,
    Failed,
    GrantLease,
    ImageSeen,
    LeaseLost,
    LeaveAsked,
    Lost,
    MayStop,
    Read,
    Refused,
    Registered,
    Report,
    Revoke,
    Started,
    StopAsked,
    TimePassed,
    Write,
)
from logfleet.node.cluster.registration.states import (
    PREVIOUS_STATES,
    CheckingLevel,
    Claiming,
    Ending,
    EndingFormer,
    GivingBack,
    Granting,
    HasFailed,
    New,
    Standing,
    State,
    Stopped,
    Stopping,
    Taken,
    Updating,
)
from logfleet.types import BrokerEpoch

from broker_image.tests.unit.node.cluster.registration.registration_rig import (
    ALL_STATES,
    EPOCH,
    FOREIGN,
    FORMER,
    KEY,
    OTHER,
    OWN,
    VALUE,
    WAITING,
    Rig,
    held,
    image,
    lost_to,
    put_of,
    rig_in,
)

AWAY, UNKNOWN = StoreUnavailable("away"), UnknownOutcome("no answer")
REFUSED, REPLACED = StoreRefused("no"), StoreReplaced("another")
FENCE = Fence(EPOCH, FENCED, 61)
LEVEL_3 = KeyValue(FEATURES.prefix, FEATURES.encode(FeaturesValue(3, "9.9")), 2, 2, 1)

TRANSITIONS: list[tuple[type[State], str, Callable[[Rig], Any], type[State], list[type]]] = [
    (New, "its start", lambda rig: rig.step(Started()), Granting, [GrantLease]),
    (Granting, "a lease", lambda rig: rig.granted(), CheckingLevel, [Read]),
    (Granting, "no store", lambda rig: rig.failed(AWAY), Granting, []),
    (Granting, "a refusal", lambda rig: rig.failed(REFUSED), HasFailed, [Fail]),
    (CheckingLevel, "no level", lambda rig: rig.read(), Claiming, [Write]),
    (CheckingLevel, "a level too high", lambda rig: rig.read(LEVEL_3), HasFailed, [Fail]),
    (CheckingLevel, "no store", lambda rig: rig.failed(AWAY), CheckingLevel, []),
    (Claiming, "success", lambda rig: rig.written(TxnResult(True, 50)), Standing, [Registered]),
    (Claiming, "its own key", lambda rig: rig.written(lost_to(held(modified=50))), Standing, [Registered]),
    (Claiming, "another's key", lambda rig: rig.written(lost_to(OTHER)), GivingBack, [Revoke]),
    (Claiming, "another level", lambda rig: rig.written(lost_to(None)), CheckingLevel, [Read]),
    (Claiming, "no answer", lambda rig: rig.failed(UNKNOWN), Claiming, []),
    (Claiming, "no store", lambda rig: rig.failed(AWAY), Claiming, []),
    (Claiming, "an ended lease", lambda rig: rig.failed(LeaseNotFound("gone")), Granting, [GrantLease]),
    (Claiming, "a refusal", lambda rig: rig.failed(REFUSED), HasFailed, [Fail]),
    (GivingBack, "its end", lambda rig: rig.revoked(), Taken, []),
    (GivingBack, "no store", lambda rig: rig.failed(AWAY), Taken, []),
    (EndingFormer, "its end", lambda rig: rig.revoked(), Granting, [GrantLease]),
    (EndingFormer, "no store", lambda rig: rig.failed(AWAY), EndingFormer, []),
    (Taken, "an older image", lambda rig: rig.step(ImageSeen(image(39))), Taken, []),
    (Taken, "an image with the holder", lambda rig: rig.step(ImageSeen(image(41, 40))), Taken, []),
    (Taken, "an image without", lambda rig: rig.step(ImageSeen(image(41))), Granting, [GrantLease]),
    (Taken, "an image with a third", lambda rig: rig.step(ImageSeen(image(42, 42))), Granting, [GrantLease]),
    (Standing, "an older image", lambda rig: rig.step(ImageSeen(image(49))), Standing, []),
    (Standing, "an image with it", lambda rig: rig.step(ImageSeen(image(50, 50))), Standing, []),
    (Standing, "an image without", lambda rig: rig.step(ImageSeen(image(51))), Ending, [Lost, Revoke]),
    (Standing, "another's image", lambda rig: rig.step(ImageSeen(image(52, 52))), Ending, [Lost, Revoke]),
    (Standing, "its fence", lambda rig: rig.step(ImageSeen(image(61, 50, FENCE))), Ending, [Lost, Revoke, Active]),
    (Standing, "its lease's end", lambda rig: rig.step(LeaseLost(OWN)), Ending, [Lost, Revoke]),
    (Standing, "another lease's end", lambda rig: rig.step(LeaseLost(FORMER)), Standing, []),
    (Standing, "a change", lambda rig: rig.update(rack="b"), Updating, [Write]),
    (Standing, "a previous epoch alone", lambda rig: rig.update(previous_epoch=3), Standing, []),
    (Updating, "success", lambda rig: rig.written(TxnResult(True, 55)), Standing, [])
    ,
    (Updating, "a newer change", lambda rig: rig.update(rack="c"), Updating, []),
    (Updating, "no answer", lambda rig: rig.failed(UNKNOWN), Updating, []),
    (Updating, "a refusal", lambda rig: rig.failed(REFUSED), Updating, [Refused]),
    (Updating, "another store", lambda rig: rig.failed(REPLACED), HasFailed, [Fail]),
    (Updating, "no key", lambda rig: rig.written(lost_to(None)), Ending, [Lost, Revoke]),
    (Updating, "another's key", lambda rig: rig.written(lost_to(held(created=70, modified=70))), Ending, [Lost, Revoke]),
    (Updating, "an ended lease", lambda rig: rig.failed(LeaseNotFound("gone")), Ending, [Lost, Revoke]),
    (Updating, "its lease's end", lambda rig: rig.step(LeaseLost(OWN)), Ending, [Lost, Revoke]),
    (Updating, "an image without", lambda rig: rig.step(ImageSeen(image(51))), Ending, [Lost, Revoke]),
    (Ending, "its end", lambda rig: rig.revoked(), Granting, [GrantLease]),
    (Ending, "no store", lambda rig: rig.failed(AWAY), Granting, [GrantLease]),
    (Ending, "another store", lambda rig: rig.failed(REPLACED), HasFailed, [Fail]),
    (Ending, "its lease's end", lambda rig: rig.step(LeaseLost(OWN)), Ending, []),
    (Stopping, "its end", lambda rig: rig.revoked(), Stopped, []),
    (Stopping, "no store", lambda rig: rig.failed(AWAY), Stopped, []),
    (Stopping, "a refusal", lambda rig: rig.failed(REFUSED), HasFailed, [Fail]),
]  # fmt: skip


@pytest.mark.parametrize(
    "state, what, happen, after, effects",
    TRANSITIONS,
    ids=lambda each: each if isinstance(each, str) else getattr(each, "__name__", ""),
)
def test_a_transition(state, what, happen, after, effects) -> None:
    rig = rig_in(state)
    found = happen(rig)
    assert (rig.state, [type(each) for each in found]) == (after, effects)


def test_every_transition_that_is_allowed_is_in_the_table_or_a_stop() -> None:
    tried = {(state, after) for state, _, _, after, _ in TRANSITIONS if state is not after}
    stops = {(state, after) for after in (Stopping, Stopped) for state in PREVIOUS_STATES[after]}
    allowed = {(state, after) for after, states in PREVIOUS_STATES.items() for state in states}
    assert tried <= allowed
    others = {(before, HasFailed) for before in PREVIOUS_STATES[HasFailed]} | {
        (GivingBack, EndingFormer)
    }
    assert allowed - tried - stops - others == set()


HOLDS_A_LEASE = {CheckingLevel, Claiming, GivingBack, Standing, Updating, Ending, HasFailed}


@pytest.mark.parametrize("state", [each for each in ALL_STATES if each not in {Stopping, Stopped}])
def test_a_stop_gives_the_lease_back_in_every_state(state) -> None:
    rig = rig_in(state)
    effects = rig.step(StopAsked())
    if state in HOLDS_A_LEASE:
        assert effects == [Revoke(OWN, rig.sent.number)]
        assert rig.state is Stopping
        rig.revoked()
    else:
        assert effects == []
    assert rig.state is Stopped
    assert rig.step(StopAsked()) == []
    assert rig.machine.due_ms is None


@pytest.mark.parametrize("state", WAITING, ids=lambda each: each.__name__)
def test_a_reply_counts_once_and_only_for_the_request_that_waits_for_it(state) -> None:
    rig = rig_in(state)
    reply = WAITING[state]
    assert rig.step(reply(rig.sent.number - 1)) == []
    assert rig.state is state
    number = rig.sent.number
    rig.step(reply(number))
    after = rig.state
    assert after is not state
    assert rig.step(reply(number)) == []
    assert rig.state is after


@pytest.mark.parametrize("state", WAITING, ids=lambda each: each.__name__)
def test_a_request_that_failed_is_sent_again_when_its_pause_is_over_and_not_before(state) -> None:
    rig = rig_in(state)
    before = rig.sent
    rig.failed(AWAY)
    due_ms = rig.machine.due_ms
    if rig.state is not state or due_ms is None:
        return
    rig.now_ms = due_ms - 1
    assert rig.step(TimePassed()) == []
    rig.now_ms = due_ms
    (again,) = rig.step(TimePassed())
    assert again == msgspec.structs.replace(before, number=before.number + 1)
    assert rig.machine.due_ms is None


def test_the_claim_creates_the_key_and_keeps_the_level() -> None:
    rig = rig_in(CheckingLevel)
    level_1 = KeyValue(FEATURES.prefix, FEATURES.encode(FeaturesValue(1, "0.9")), 2, 2, 1)
    (write,) = rig.read(level_1)
    assert isinstance(write, Write)
    assert write.txn.compares == (absent(KEY), value_is(FEATURES.prefix, level_1.value))
    assert write.txn.success == (
        Put(KEY, BROKER.encode(VALUE), OWN),
        Put(FEATURES.prefix, level_1.value),
    )
    assert write.txn.failure == (Get(KEY),)


def test_a_level_that_it_cannot_do_is_named() -> None:
    rig = rig_in(CheckingLevel)
    (fail,) = rig.read(LEVEL_3)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, LevelTooHigh)
    assert "9.9" in str(fail.error)


def test_pauses_between_attempts_of_a_claim_grow_and_start_again_with_the_next() -> None:
    rig, pauses = rig_in(Claiming), []
    for _ in range(8):
        rig.failed(UNKNOWN)
        due_ms = rig.machine.due_ms
        assert due_ms is not None
        pauses.append(due_ms - rig.now_ms)
        rig.now_ms = due_ms
        rig.step(TimePassed())
    assert pauses == [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]


def test_a_refused_update_is_tried_more_and_more_rarely_until_it_is_accepted() -> None:
    rig, pauses = rig_in(Updating), []
    for _ in range(8):
        assert rig.failed(REFUSED) == [Refused(KEY, REFUSED)]
        due_ms = rig.machine.due_ms
        assert due_ms is not None
        pauses.append((due_ms - rig.now_ms) / 1000)
        rig.now_ms = due_ms
        rig.step(TimePassed())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert rig.written(TxnResult(True, 55)) == [Accepted(KEY)]


def test_an_update_compares_the_last_write_that_is_known_of_the_key() -> None:
    rig = rig_in(Standing)
    revisions = []
    for revision, rack in ((55, "b"), (58, "c")):
        (write,) = rig.update(rack=rack)
        assert isinstance(write, Write)
        revisions.append(write.txn.compares[0])
        rig.written(TxnResult(True, revision))
    assert revisions == [modified_at(KEY, EPOCH), modified_at(KEY, 55)]


def test_an_update_whose_answer_was_lost_is_found_and_followed_by_the_next() -> None:
    rig = rig_in(Standing)
    rig.update(rack="b")
    rig.failed(UNKNOWN)
    rig.update(rack="c")
    rig.now_ms += 50
    (again,) = rig.step(TimePassed())
    assert b'"b"' in put_of(again), "only the same write settles it"
    there = held(msgspec.structs.replace(VALUE, rack="b"), modified=55)
    (next_one,) = rig.written(lost_to(there))
    assert isinstance(next_one, Write)
    assert next_one.txn.compares == (modified_at(KEY, 55),)
    assert b'"c"' in put_of(next_one)


def test_what_changes_while_it_registers_is_written_afterwards() -> None:
    rig = rig_in(Claiming)
    assert rig.update(rack="b") == []
    registered, write = rig.written(TxnResult(True, EPOCH))
    assert registered == Registered(EPOCH, OWN)
    assert isinstance(write, Write)


def test_an_id_that_stays_taken_is_given_up_when_its_time_is_over() -> None:
    rig = rig_in(Taken, taken_ms_max=500)
    assert rig.machine.due_ms == rig.now_ms + 500
    rig.now_ms += 300
    rig.step(ImageSeen(image(42, 42)))
    rig.granted(8)
    rig.read()
    rig.now_ms += 100
    rig.written(lost_to(held(created=42, modified=42, lease=FOREIGN)))
    rig.revoked()
    assert rig.state is Taken
    assert rig.machine.due_ms == rig.now_ms + 100, "from when it was first seen"
    rig.now_ms += 100
    (fail,) = rig.step(TimePassed())
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, IdTaken)
    assert "incarnation me at PLAINTEXT://host:9092" in str(fail.error)


def test_a_registration_starts_the_time_of_a_taken_id_again() -> None:
    rig = rig_in(Taken, taken_ms_max=500)
    rig.step(ImageSeen(image(41)))
    rig.register()
    rig.step(ImageSeen(image(51)))
    rig.revoked()
    rig.now_ms += 1_000
    rig.granted(8)
    rig.read()
    rig.written(lost_to(held(created=70, modified=70, lease=FOREIGN)))
    rig.revoked()
    assert rig.state is Taken
    assert rig.machine.due_ms == rig.now_ms + 500


def test_a_stranger_is_not_ended_as_if_it_were_the_former_registration() -> None:
    rig = rig_in(Ending)
    rig.failed(AWAY)
    rig.granted(8)
    rig.read()
    rig.written(lost_to(held(created=70, modified=70, lease=FOREIGN)))
    rig.revoked()
    assert rig.state is Taken


def test_an_image_that_was_seen_before_the_answer_ends_the_registration_at_once() -> None:
    rig = rig_in(Claiming)
    rig.step(ImageSeen(image(61)))
    effects = rig.written(TxnResult(True, EPOCH))
    assert [type(each) for each in effects] == [Registered, Lost, Revoke]


def active(epoch: int = EPOCH, revision: int = 61) -> ImageSeen:
    return ImageSeen(image(revision, epoch, Fence(BrokerEpoch(epoch), ACTIVE, revision)))


def test_once_it_was_active_its_disk_counts_as_clean_and_that_is_written() -> None:
    rig = rig_in(Standing)
    first, write = rig.step(active())
    assert first == Active(EPOCH)
    assert isinstance(write, Write)
    assert rig.machine.value == msgspec.structs.replace(VALUE, unclean=False, previous_epoch=EPOCH)
    assert rig.step(active(revision=62)) == [], "once"


def test_a_fence_of_another_process_does_not_make_its_disk_clean() -> None:
    rig = rig_in(Standing)
    rig.step(ImageSeen(image(61, EPOCH, Fence(BrokerEpoch(40), ACTIVE, 45))))
    assert rig.machine.value.unclean


def test_that_a_former_registration_was_active_counts_however_late_it_is_seen() -> None:
    rig = rig_in(Ending)
    fence = Fence(EPOCH, FENCED, 61)
    assert rig.step(ImageSeen(image(61, None, fence))) == [Active(EPOCH)]
    assert not rig.machine.value.unclean


def brokers(*states: tuple[int, bool, str]) -> ImageSeen:
    """Brokers by id, whether they leave, and their state."""
    return ImageSeen(
        ClusterImage(
            70,
            brokers={
                number: Broker(
                    number,
                    BrokerEpoch(EPOCH if number == 1 else 20),
                    BrokerValue("b", (), leaving=is_leaving),
                    state,
                )
                for number, is_leaving, state in states
            },
        )
    )


def test_a_broker_that_is_not_registered_or_alone_stops_at_once() -> None:
    for rig in (rig_in(Claiming), rig_in(Standing)):
        assert rig.step(LeaveAsked(1_000)) == [MayStop("")]
        assert not rig.machine.value.leaving


@pytest.mark.parametrize(
    "others, why",
    [
        (brokers((1, True, DRAINING), (2, False, ACTIVE)), "nothing more"),
        (brokers((1, True, ACTIVE), (2, True, ACTIVE)), "nothing more"),
        (brokers((1, True, ACTIVE), (2, False, FENCED)), "nothing more"),
        (brokers((1, True, ACTIVE), (2, False, ACTIVE)), ""),
    ],
)
def test_a_broker_that_leaves_stops_when_nothing_needs_it(others, why) -> None:
    rig = rig_in(Standing)
    rig.step(brokers((1, False, ACTIVE), (2, False, ACTIVE)))
    (write,) = rig.step(LeaveAsked(1_000))
    assert isinstance(write, Write)
    assert rig.machine.due_ms == rig.now_ms + 1_000
    stops = [each for each in rig.step(others) if isinstance(each, MayStop)]
    assert [why in each.cause for each in stops] == ([True] if why else [])


def test_a_broker_that_leaves_stops_when_its_time_is_up() -> None:
    rig = rig_in(Standing)
    rig.step(brokers((1, False, ACTIVE), (2, False, ACTIVE)))
    rig.step(LeaveAsked(55_000))
    rig.now_ms += 54_999
    assert rig.step(TimePassed()) == []
    rig.now_ms += 1
    (stop,) = rig.step(TimePassed())
    assert stop == MayStop("others did not take over its partitions within 55 s")
    assert rig.step(TimePassed()) == []


def test_a_broker_that_loses_its_registration_while_it_leaves_registers_as_leaving() -> None:
    rig = rig_in(Standing)
    rig.step(brokers((1, False, ACTIVE), (2, False, ACTIVE)))
    rig.step(LeaveAsked(55_000))
    rig.step(LeaseLost(OWN))
    rig.revoked()
    rig.granted(8)
    (claim,) = rig.read()
    assert b'"leaving":true' in put_of(claim)


def test_a_store_that_is_away_is_reported() -> None:
    rig = rig_in(Granting)
    (line,) = rig.machine.step(Failed(rig.sent.number, AWAY), rig.now_ms)
    assert line == Report("warning", "metadata_store_unavailable", {"reason": "away"})
