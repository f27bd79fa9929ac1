"""How a broker becomes the controller, and how it stops being it."""

from collections.abc import Callable

import pytest
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms import events
from logfleet.controller.terms.candidate import (
    NEXT,
    Claiming,
    Controlling,
    Defeated,
    Finishing,
    Gone,
    Leasing,
    Pausing,
    Released,
    Releasing,
    Revoking,
    Watching,
)
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.metadata.store import (
    Put,
    StoreUnavailable,
    Txn,
)

from broker_image.tests.unit.controller.terms.machine_rig import Node, World, put


def watching(world: World) -> Node:
    """It has no image yet."""
    return Node(world, 1)


def releasing(world: World) -> Node:
    """The image says that this process controls, and it does not."""
    node = Node(world, 1)
    value = CONTROLLER.encode(ControllerValue(1, "i1"))
    world.commit(Txn(success=(Put(CONTROLLER.prefix, value),)))
    node.publish()
    return node


def released(world: World) -> Node:
    node = releasing(world)
    node.answer(node.one(to_do.Write))
    return node


def leasing(world: World) -> Node:
    node = Node(world, 1)
    world.register(1)
    node.publish()
    return node


def claiming(world: World) -> Node:
    node = leasing(world)
    node.answer(node.one(to_do.GrantLease))
    return node


def defeated(world: World) -> Node:
    node = claiming(world)
    world.commit(Txn(success=(CONTROLLER.put(None, ControllerValue(2, "i2")),)))
    node.answer(node.one(to_do.Write))
    return node


def controlling(world: World) -> Node:
    node = claiming(world)
    node.settle()
    return node


def finishing(world: World) -> Node:
    """Its term is over, and an operation's write is in flight."""
    node = controlling(world)
    node.request(1, put("a"))
    world.depose()
    node.publish()
    return node


def revoking(world: World) -> Node:
    node = controlling(world)
    world.depose()
    node.publish()
    return node


def pausing(world: World) -> Node:
    node = leasing(world)
    node.pending.clear()
    node.step(events.LeaseGranted(StoreUnavailable("away")))
    return node


def gone(world: World) -> Node:
    node = leasing(world)
    node.step(events.Stopped())
    return node


STATES: dict[type, Callable[[World], Node]] = {
    Watching: watching,
    Releasing: releasing,
    Released: released,
    Leasing: leasing,
    Claiming: claiming,
    Defeated: defeated,
    Controlling: controlling,
    Finishing: finishing,
    Revoking: revoking,
    Pausing: pausing,
    Gone: gone,
}


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.__name__)
def test_each_state_is_reached(state: type) -> None:
    assert STATES.keys() == NEXT.keys()
    assert isinstance(STATES[state](World()).candidate.state, state)


def image_without_a_controller(node: Node) -> None:
    node.world.register(1)
    node.world.depose()
    node.publish()


def image_of_another_controller(node: Node) -> None:
    node.world.depose()
    node.world.commit(Txn(success=(CONTROLLER.put(None, ControllerValue(2, "i2")),)))
    node.publish()


def lease_lost(node: Node) -> None:
    for lease in node.leases:
        node.step(events.LeaseLost(lease))


def an_hour_passed(node: Node) -> None:
    node.world.now_ms += 3_600_000
    node.step(events.TimePassed())


def stopped(node: Node) -> None:
    node.step(events.Stopped())


def answered(node: Node) -> None:
    for each in list(node.pending):
        node.answer(each)


ROWS: dict[type, tuple[type, ...]] = {
    Watching: (Leasing, Watching, Watching, Watching, Gone, Watching),
    Releasing: (Releasing, Releasing, Releasing, Releasing, Gone, Released),
    Released: (Leasing, Watching, Released, Released, Gone, Released),
    Leasing: (Leasing, Leasing, Leasing, Leasing, Gone, Claiming),
    Claiming: (Claiming, Claiming, Claiming, Claiming, Gone, Controlling),
    Defeated: (Revoking, Revoking, Defeated, Defeated, Gone, Defeated),
    Controlling: (Revoking, Revoking, Revoking, Controlling, Gone, Controlling),
    Finishing: (Finishing, Finishing, Finishing, Finishing, Gone, Revoking),
    Revoking: (Revoking, Revoking, Revoking, Revoking, Gone, Leasing),
    Pausing: (Pausing, Pausing, Pausing, Leasing, Gone, Pausing),
    Gone: (Gone, Gone, Gone, Gone, Gone, Gone),
}
EVENTS = (
    image_without_a_controller,
    image_of_another_controller,
    lease_lost,
    an_hour_passed,
    stopped,
    answered,
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", STATES, ids=lambda each: each.__name__)
def test_what_follows_an_event(state: type, event) -> None:
    node = STATES[state](World())
    event(node)
    assert type(node.candidate.state) is ROWS[state][EVENTS.index(event)]


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.__name__)
def test_a_request_is_taken_by_the_controller_only(state: type) -> None:
    node = STATES[state](World())
    node.request(7, put("b"))
    if state is Controlling:
        node.settle()
        assert node.answers[7] == "done"
    else:
        assert isinstance(node.answers[7], to_do.NotController)
