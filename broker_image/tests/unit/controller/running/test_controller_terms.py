"""How a term of control ends: by a fault of its own, or in the midst of what was asked of it."""

import asyncio
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pytest
from logfleet.controller.changes.topics import TopicCreation
from logfleet.controller.terms import candidate as controller_candidate
from logfleet.controller.terms.operations import NotControllerError
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.telemetry.decisions import Kind
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal
from structlog.testing import capture_logs

from broker_image.tests.unit.controller.running.controller_rig import (
    MENDING,
    WHAT_NO_CONTROLLER_EXPECTS,
    Node,
    Store,
    recorded,
    running,
    soon,
    start_broker,
    until,
)

PAUSES_S = 0.001, 0.004
Row = MutableMapping[str, Any]
pytestmark = pytest.mark.asyncio


@pytest.fixture
def logs(monkeypatch) -> Iterator[Sequence[Row]]:
    monkeypatch.setattr(controller_candidate, "PAUSE_MS", int(1000 * PAUSES_S[0]))
    monkeypatch.setattr(controller_candidate, "FAILED_PAUSE_MS_MAX", int(1000 * PAUSES_S[1]))
    with capture_logs() as rows:
        yield rows


def failures(logs: Sequence[Row]) -> list[Row]:
    return [row for row in logs if row["event"] == "controller_term_failed"]


async def create(name: str, *nodes: Node) -> object:
    """The answer of whichever node is the controller, retried until there is one."""
    while True:
        await until(lambda: any(node.loop.is_controller for node in nodes))
        controller = next(node for node in nodes if node.loop.is_controller)
        try:
            return await controller.create(name)
        except NotControllerError:
            continue


async def test_what_no_controller_can_handle_ends_terms_and_no_broker(store, logs):
    await start_broker(store, 1)
    await store.write(*WHAT_NO_CONTROLLER_EXPECTS)
    async with running(store, 1) as first, running(store, 2) as second:
        await until(lambda: {row["broker"] for row in failures(logs)} == {1, 2})
        await store.write(*MENDING)
        assert isinstance(await create("t", first, second), TopicCreation)
    row = failures(logs)[0]
    assert row["log_level"] == "critical"
    assert isinstance(row["exc_info"], ValueError), "the traceback tells the fault"
    ended = recorded(first.decisions, Kind.CONTROLLER_RESIGNED)[0]
    assert ended.cause == f"it failed: {row['exc_info']}"
    counted = first.loop.failed_terms, second.loop.failed_terms
    assert sum(counted) == len(failures(logs))
    assert 0 not in counted


async def test_a_term_that_fails_again_and_again_is_tried_ever_later(store, logs):
    await start_broker(store, 1)
    await store.write(*WHAT_NO_CONTROLLER_EXPECTS)
    async with running(store) as node:
        await until(lambda: len(failures(logs)) >= 4)
        first, longest = PAUSES_S
        pauses = [row["pause_s"] for row in failures(logs)]
        assert pauses[:4] == [first, 2 * first, longest, longest]
        await store.write(*MENDING)
        assert isinstance(await create("t", node), TopicCreation)
        before = len(failures(logs))
        await store.write(*WHAT_NO_CONTROLLER_EXPECTS)
        await until(lambda: len(failures(logs)) > before)
        assert failures(logs)[before]["pause_s"] == first, "one term in between was well"


async def begun(node: Node, store: Store, loss: str) -> "asyncio.Future[TopicCreation | Refusal]":
    """The creation of a topic whose transaction is on its way."""
    await start_broker(store, 1)
    assert isinstance(await create("converged", node), TopicCreation)
    store.losses = [loss]
    creating = asyncio.ensure_future(node.create("t"))
    await until(lambda: store.unanswered)
    return creating


@pytest.mark.parametrize("loss", ["late", "late after"])
async def test_what_is_done_as_a_term_ends_is_answered_as_done(store, loss):
    """Asked of the next controller, it would be refused as a topic that exists already."""
    async with running(store) as node:
        creating = await begun(node, store, loss)
        waiting = asyncio.ensure_future(node.create("u"))
        await store.write(CONTROLLER.delete(None))
        await until(lambda: not node.loop.is_controller)
        with pytest.raises(NotControllerError):
            await waiting
        assert not creating.done()
        store.answering.set()
        assert isinstance(await soon(creating), TopicCreation)
        assert isinstance(await create("u", node), TopicCreation)


async def test_what_is_not_done_as_a_term_ends_is_left_to_the_next(store):
    async with running(store) as node:
        creating = await begun(node, store, "late before")
        await store.write(CONTROLLER.delete(None))
        await until(lambda: not node.loop.is_controller)
        store.answering.set()
        with pytest.raises(NotControllerError):
            await soon(creating)
        assert isinstance(await create("t", node), TopicCreation)
        first, second = recorded(node.decisions, Kind.CONTROLLER_ELECTED)
        assert first.broker == 1
        assert first.facts["epoch"] != second.facts["epoch"]
        (ended,) = recorded(node.decisions, Kind.CONTROLLER_RESIGNED)
        assert (ended.cause, ended.facts) == ("it was replaced", first.facts)


async def test_what_is_on_its_way_as_a_broker_stops_may_have_been_done(store):
    async with running(store) as node:
        creating = await begun(node, store, "late")
    refusal = await soon(creating)
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.REQUEST_TIMED_OUT
