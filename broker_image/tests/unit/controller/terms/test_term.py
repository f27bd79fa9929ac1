"""What a term does, phase by phase, and what bounds each of its waits."""

import pytest
from logfleet.controller.brokers.vanishing import HELD_MS_MAX
from logfleet.controller.terms import convergence, events, term
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms.candidate import Controlling, Finishing, Pausing, Revoking
from logfleet.controller.terms.operations import OUTCOME_UNKNOWN, TermDecision
from logfleet.controller.terms.term import (
    ATTEMPTS_MAX,
    CATCH_UP_MS_MAX,
    HISTORY_MS,
    Phase,
    Term,
)
from logfleet.metadata.kinds.brokers import ACTIVE, FENCED
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.store import (
    Put,
    Snapshot,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    Txn,
    exists,
)
from logfleet.telemetry.decisions import Kind
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

from broker_image.tests.unit.controller.terms.machine_rig import Node, World, put

NEVER = exists("never/there")


def elected(world: World) -> Node:
    """It has won; its image does not show that yet."""
    node = Node(world, 1)
    world.register(1)
    node.publish()
    node.answer(node.one(to_do.GrantLease))
    node.answer(node.one(to_do.Write))
    return node


def loading(world: World) -> Node:
    node = elected(world)
    node.publish()
    return node


def idle(world: World) -> Node:
    node = elected(world)
    node.settle()
    return node


def converging(world: World) -> Node:
    """A broker has come, and is being admitted."""
    node = idle(world)
    world.register(2)
    node.publish()
    return node


def operating(world: World) -> Node:
    node = idle(world)
    node.request(1, put("a"))
    return node


def catching_up(world: World) -> Node:
    """An operation lost a conflict, and the image does not show with what."""
    node = idle(world)
    node.request(1, put("a", NEVER))
    node.answer(node.one(to_do.Write))
    return node


PHASES = {
    Phase.STARTING: elected,
    Phase.LOADING: loading,
    Phase.IDLE: idle,
    Phase.CONVERGING: converging,
    Phase.OPERATING: operating,
    Phase.CATCHING_UP: catching_up,
}


def term_of(node: Node) -> Term:
    found = node.candidate.state
    assert isinstance(found, Controlling | Finishing)
    return found.term


def kinds(node: Node) -> list[Kind]:
    return [decision.kind for decision in node.decisions]


@pytest.mark.parametrize("phase", PHASES, ids=lambda each: each.name)
def test_each_phase_is_reached(phase: Phase) -> None:
    assert {*PHASES, Phase.ENDED} == term.NEXT.keys()
    assert term_of(PHASES[phase](World())).phase is phase


@pytest.mark.parametrize("phase", PHASES, ids=lambda each: each.name)
def test_from_each_phase_the_term_comes_to_rest(phase: Phase) -> None:
    node = PHASES[phase](World())
    for _ in range(2 * ATTEMPTS_MAX):
        node.settle()
        node.world.now_ms += CATCH_UP_MS_MAX
        node.tick()
    assert term_of(node).phase is Phase.IDLE
    assert term_of(node).has_converged


@pytest.mark.parametrize("phase", PHASES, ids=lambda each: each.name)
@pytest.mark.parametrize("end", ["replaced", "lease lost", "stopped"])
def test_each_phase_may_end_and_every_request_is_answered(phase: Phase, end: str) -> None:
    node = PHASES[phase](World())
    node.request(2, put("b"))
    current = term_of(node)
    match end:
        case "replaced":
            node.world.depose()
            node.publish()
        case "lease lost":
            (lease,) = node.leases
            node.world.end_lease(lease)
            node.step(events.LeaseLost(lease))
        case "stopped":
            node.step(events.Stopped())
    assert node.candidate.term is None
    node.settle()
    node.world.now_ms += CATCH_UP_MS_MAX
    node.tick()
    node.settle()
    assert current.phase is Phase.ENDED
    requested = {2} | ({1} if phase in {Phase.OPERATING, Phase.CATCHING_UP} else set())
    assert node.answers.keys() == requested


@pytest.mark.parametrize("phase", convergence.NEXT, ids=lambda each: each.name)
def test_a_pass_can_be_given_up_in_each_phase(phase: convergence.Phase) -> None:
    is_under_way = phase is not convergence.Phase.OVER
    assert (convergence.Phase.OVER in convergence.NEXT[phase]) == is_under_way


FATES = {
    "done": "done",
    "lost after": "done",
    "lost before": "done",
    "away": "done",
    "refused": Refusal(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "The metadata store refuses to write this: permission denied",
    ),
}


@pytest.mark.parametrize("fate", FATES)
def test_an_operation_is_answered_by_what_became_of_its_write(fate: str) -> None:
    node = operating(World())
    node.answer(node.one(to_do.Write), fate)
    node.world.now_ms += 1_000
    node.tick()
    node.settle()
    assert node.answers == {1: FATES[fate]}
    assert (node.world.keyspace.get("a") is not None) == (fate != "refused")


def test_what_was_done_is_recognised_though_another_broker_controls() -> None:
    node = operating(World())
    node.answer(node.one(to_do.Write), "lost after")
    node.world.depose()
    node.world.commit(Txn(success=(Put(CONTROLLER.prefix, b'{"broker":2,"incarnation":"i2"}'),)))
    node.publish()
    assert isinstance(node.candidate.state, Finishing)
    node.world.now_ms += 1_000
    node.tick()
    node.settle()
    assert node.answers == {1: "done"}


def test_what_was_not_done_is_left_to_the_next_controller() -> None:
    node = operating(World())
    node.world.depose()
    node.settle()
    assert isinstance(node.answers[1], to_do.NotController)
    assert node.world.keyspace.get("a") is None


def test_what_is_in_flight_as_the_broker_stops_is_unknown() -> None:
    node = operating(World())
    node.request(2, put("b"))
    node.step(events.Stopped())
    assert node.answers[1] == OUTCOME_UNKNOWN
    assert isinstance(node.answers[2], to_do.NotController)
    assert [type(each) for each in node.pending[-1:]] == [to_do.RevokeLease]


def test_a_conflict_is_decided_again_by_a_newer_image_or_after_a_limit() -> None:
    node = catching_up(World())
    assert not [each for each in node.pending if isinstance(each, to_do.Write)]
    node.world.register(1)
    node.publish()
    node.answer(node.one(to_do.Write))  # the image is a newer one
    node.world.now_ms += CATCH_UP_MS_MAX - 1
    node.step(events.TimePassed())
    assert term_of(node).phase is Phase.CATCHING_UP
    node.world.now_ms += 1
    node.tick()
    assert node.one(to_do.Write).attempt == 1, "it is another write"
    assert node.logged[-1] == "metadata_loader_behind"


def test_an_operation_that_never_fits_is_given_up() -> None:
    node = catching_up(World())
    for _ in range(ATTEMPTS_MAX):
        assert 1 not in node.answers
        node.world.now_ms += CATCH_UP_MS_MAX
        node.tick()
        node.settle()
    answer = node.answers[1]
    assert isinstance(answer, Refusal)
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert node.logged.count("decision_repeated") == ATTEMPTS_MAX


def test_an_operation_that_fails_is_refused_alone() -> None:
    node = idle(World())

    def broken(*_: object) -> TermDecision[object]:
        raise ValueError("a rule was forgotten")

    node.request(1, broken)
    node.request(2, put("b"))
    node.settle()
    assert node.answers[1] == Refusal(
        ErrorCode.UNKNOWN_SERVER_ERROR, "The controller could not do this: a rule was forgotten"
    )
    assert node.answers[2] == "done"


def test_a_withdrawn_request_is_not_decided() -> None:
    node = operating(World())
    node.request(2, put("b"))
    node.step(events.OperationWithdrawn(2))
    node.step(events.OperationWithdrawn(1))
    node.settle()
    assert node.world.keyspace.get("a") is not None, "it had begun"
    assert node.world.keyspace.get("b") is None


ERRORS = [
    (StoreUnavailable("away"), Revoking, 2_000, "controller_election_delayed"),
    (StoreRefused("permission denied"), Revoking, 2_000, "controller_election_delayed"),
    (ValueError("what no rule expects"), Revoking, 2_000, "controller_term_failed"),
]


@pytest.mark.parametrize("error, state, pause_ms, event", ERRORS)
def test_an_error_ends_the_term_and_the_next_campaign_waits(error, state, pause_ms, event) -> None:
    node = loading(World())
    receipts = node.one(to_do.ReadReceipts)
    node.pending.remove(receipts)
    node.step(events.ReceiptsRead(receipts.epoch, error))
    assert isinstance(node.candidate.state, state)
    assert event in node.logged
    assert kinds(node)[-1] is Kind.CONTROLLER_RESIGNED
    node.settle()
    assert node.candidate.state == Pausing(node.world.now_ms + pause_ms)
    assert node.candidate.failed_terms == (event == "controller_term_failed")


def test_another_store_ends_the_broker() -> None:
    node = loading(World())
    receipts = node.one(to_do.ReadReceipts)
    with pytest.raises(StoreReplaced):
        node.step(events.ReceiptsRead(receipts.epoch, StoreReplaced("another cluster")))


def test_events_of_an_earlier_term_count_for_nothing() -> None:
    node = loading(World())
    current = term_of(node)
    for event in (
        events.ReceiptsRead(current.epoch - 1, Snapshot(1, ())),
        events.ReceiptsRead(current.epoch - 1, StoreUnavailable("away")),
        events.LogEndsReported(current.epoch - 1, 1, {}),
        events.LogEndsReported(current.epoch - 1, 1, ValueError("a fault")),
        events.LogEndsReported(current.epoch, 1, {}),
        events.Compacted(current.epoch - 1, ValueError("a fault")),
        events.WriteAnswered(1, ValueError("a fault")),
        events.LeaseLost(99),
        events.LeaseGranted(99),
        events.LeaseRevoked(99),
        events.TimePassed(),
        events.TurnCame(),
    ):
        node.step(event)
    assert term_of(node) is current
    assert current.phase is Phase.LOADING


def test_history_is_compacted_as_it_was_a_while_ago_and_again_after_an_error() -> None:
    node = idle(World())
    then = node.world.image.revision
    node.world.register(2)
    node.settle()
    for error in (StoreUnavailable("away"), None):
        node.world.now_ms += HISTORY_MS
        node.tick()
        compact = node.one(to_do.Compact)
        assert compact.revision <= then
        node.pending.remove(compact)
        then = node.world.image.revision
        node.step(events.Compacted(compact.epoch, error))
    assert node.logged.count("metadata_compaction_delayed") == 1


def test_a_hold_ends_by_itself_or_when_brokers_are_back() -> None:
    for is_back in (False, True):
        world = World()
        node = idle(world)
        for broker_id in range(2, 7):
            world.register(broker_id, rack="abc"[broker_id % 3])
        node.settle()
        for broker_id in (2, 3, 4, 5):
            world.vanish(broker_id)
        node.settle()
        assert node.logged.count("elections_held") == 1
        assert kinds(node)[-1] is Kind.ELECTIONS_HELD
        assert world.image.fences[2].state == ACTIVE, "nobody is fenced"
        node.request(1, put("a"))
        node.settle()
        assert node.answers == {1: "done"}, "administrators are served"
        if is_back:
            for broker_id in (2, 3, 4, 5):
                world.register(broker_id, rack="abc"[broker_id % 3])
        else:
            world.now_ms += HELD_MS_MAX
            node.tick()
        node.settle()
        assert world.image.fences[2].state == (ACTIVE if is_back else FENCED)
        assert not any(each.is_new for each in world.image.brokers.values())
