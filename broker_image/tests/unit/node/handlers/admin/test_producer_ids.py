import asyncio

import pytest
from logfleet.metadata.store import StoreRefused, StoreUnavailable
from logfleet.node.cluster import producer_id_pool
from logfleet.node.cluster.producer_id_blocks import BLOCK_SIZE
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest

pytestmark = pytest.mark.asyncio


def request(**given) -> InitProducerIdRequest:
    return InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 1, **given})


async def test_every_producer_gets_another_id_at_every_version(node, versions):
    ids = set()
    for version in versions(InitProducerIdRequest):
        answer = await node.ask(request(), version)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids) == len(versions(InitProducerIdRequest))


async def test_blocks_of_two_brokers_do_not_overlap(start):
    first, second = await start(1), await start(2, stands=False)
    ids = [
        (await node.ask(request())).producer_id
        for _ in range(BLOCK_SIZE + 5)
        for node in (first, second)
    ]
    assert len(set(ids)) == len(ids)


async def test_many_producers_at_once_use_up_one_block_before_the_next(node):
    answers = await asyncio.gather(*(node.ask(request()) for _ in range(50)))
    assert sorted(answer.producer_id for answer in answers) == list(range(50))


async def test_an_id_of_before_is_replaced_by_a_new_one(node):
    answer = await node.ask(request(producer_id=77, producer_epoch=3))
    assert (answer.producer_id, answer.producer_epoch) == (0, 0)


@pytest.mark.parametrize(
    "given, error",
    [
        ({"producer_id": 5}, "INVALID_REQUEST"),
        ({"producer_epoch": 5}, "INVALID_REQUEST"),
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"transactional_id": "t"}, "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
async def test_what_cannot_be_is_refused(node, given, error):
    answer = await node.ask(request(**given))
    assert ErrorCode(answer.error_code).name == error
    assert answer.producer_id == -1


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreRefused("permission denied")])
async def test_without_the_store_a_producer_has_to_try_again(node, monkeypatch, error):
    async def away(_: str) -> None:
        raise error

    monkeypatch.setattr(node.store, "get", away)
    answer = await node.ask(request())
    assert ErrorCode(answer.error_code).name == "COORDINATOR_LOAD_IN_PROGRESS"


async def test_a_store_that_does_not_answer_is_not_waited_for_too_long(node, monkeypatch):
    monkeypatch.setattr(producer_id_pool, "TAKE_S_MAX", 0.01)
    monkeypatch.setattr(node.store, "get", lambda _: asyncio.Event().wait())
    answer = await node.ask(request())
    assert ErrorCode(answer.error_code).name == "COORDINATOR_LOAD_IN_PROGRESS"


async def test_a_block_in_reserve_serves_new_producers_while_the_store_is_away(node, monkeypatch):
    ids = node.producer_ids
    running = asyncio.ensure_future(ids.run())
    await until(lambda: ids._reserve is not None)
    monkeypatch.setattr(ids, "_store", Away())
    answers = [await node.ask(request()) for _ in range(BLOCK_SIZE)]
    assert sorted(answer.producer_id for answer in answers) == list(range(BLOCK_SIZE))
    monkeypatch.setattr(ids, "_store", node.store)
    monkeypatch.setattr(producer_id_pool, "RESERVE_PAUSE_S", 0.0)
    await until(lambda: ids._reserve is not None)
    assert (await node.ask(request())).producer_id == BLOCK_SIZE
    running.cancel()
    await asyncio.wait([running])


class Away:
    """A store that does not answer."""

    async def get(self, key: str) -> None:
        raise StoreUnavailable(key)


async def until(holds) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.005)
