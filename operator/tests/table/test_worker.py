"""The worker as it runs in the process, against a World."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace

import pytest
from logfleet_operator import worker as worker_module
from logfleet_operator.kube import KubeError
from logfleet_operator.worker import Key, Worker

from .operation import SETTINGS, Operation, cluster
from .world import NAMESPACE, Manifest, World

pytestmark = pytest.mark.asyncio


async def test_a_reading_that_breaks_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "RESYNC_RETRY_S", 0.0)
    world = World()

    def once(number: int) -> None:
        if number == 0:
            raise KeyError("items")

    world.before_call = once
    worker = Operation(world).worker
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(30):
        while not worker.synced:
            assert not running.done()
            await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


class Guarded(World):
    """A World that fails lists of some namespaces ("" is all) with the status `answers`."""

    def __init__(self, answers: Mapping[str, int]) -> None:
        super().__init__()
        self.answers = dict(answers)

    async def list(
        self, kind: str, namespace: str, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        if status := self.answers.get(namespace):
            raise KubeError(status, "", f"cannot list {kind} in {namespace!r}")
        return await super().list(kind, namespace, labels)


def worker_of(world: World, *namespaces: str) -> Worker:
    return Operation(world, replace(SETTINGS, namespaces=frozenset(namespaces))).worker


def keys(worker: Worker) -> set[Key]:
    found = set()
    while key := worker.queue.take(0.0):
        found.add(key)
        worker.queue.done(key)
    return found


BOTH = {Key("cluster", NAMESPACE, "fleet"), Key("topics", NAMESPACE, "fleet")}


@pytest.mark.parametrize("status", [403, 404])
async def test_a_namespace_that_is_gone_keeps_no_other_waiting(status: int) -> None:
    world = Guarded({"abroad": status, "zone": status})
    world.put(cluster())
    worker = worker_of(world, "abroad", NAMESPACE, "zone")
    await worker.resync()
    assert worker.synced
    assert keys(worker) == BOTH


async def test_a_namespace_that_is_back_is_looked_at() -> None:
    world = Guarded({NAMESPACE: 403})
    world.put(cluster())
    worker = worker_of(world, "abroad", NAMESPACE)
    await worker.resync()
    assert keys(worker) == set()
    world.answers.clear()
    await worker.resync()
    assert keys(worker) == BOTH


@pytest.mark.parametrize("namespaces", [(), (NAMESPACE,), ("abroad", NAMESPACE)])
async def test_where_everything_is_refused_nothing_was_listed(namespaces: tuple[str, ...]) -> None:
    world = Guarded(dict.fromkeys(namespaces or ("",), 403))
    worker = worker_of(world, *namespaces)
    with pytest.raises(KubeError):
        await worker.resync()
    assert not worker.synced


async def test_another_error_of_one_namespace_is_no_refusal() -> None:
    worker = worker_of(Guarded({NAMESPACE: 410}), "abroad", NAMESPACE)
    with pytest.raises(KubeError):
        await worker.resync()
    assert not worker.synced
