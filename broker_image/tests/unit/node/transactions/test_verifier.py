import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from logfleet.io.tasks import cancel
from logfleet.log.names import TopicPartition
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.node.transactions.verifier import Client
from logfleet.store.loader import Subscription
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.node.transactions.verifier_rig import Rig, answers_to, partitions
from broker_image.tests.unit.waiting import Until

TV1, TV2 = Client(adds=False, aborts=True), Client(adds=True, aborts=True)
OLD = Client(adds=False, aborts=False)


def local(**config: Any) -> Rig:
    """This broker is the coordinator."""
    rig = Rig(**config)
    rig.know_broker(1, 1)
    rig.lead(1)
    return rig


def remote(broker: FakeBroker, broker_id: int = 2) -> Rig:
    """Another broker is."""
    rig = Rig()
    rig.know_broker(1, 1)
    rig.know_broker(broker_id, broker.port)
    rig.lead(broker_id)
    return rig


def ask(rig: Rig, name: str = "a", indexes: tuple[int, ...] = (0,)) -> Awaitable[Any]:
    return rig.verifier.ask(name, (7, 3), partitions(*indexes), TV2)


@pytest.mark.parametrize("version, wanted", [(10, OLD), (11, TV1), (12, TV2), (13, TV2)])
def test_a_produce_says_by_its_version_what_its_client_understands(version, wanted) -> None:
    assert Client.of_produce(version) == wanted


@pytest.mark.parametrize("version, wanted", [(3, OLD), (4, TV1), (5, TV2), (6, TV2)])
def test_a_commit_of_offsets_says_by_its_version_what_its_client_understands(
    version, wanted
) -> None:
    assert Client.of_txn_offset_commit(version) == wanted


@pytest.mark.asyncio
async def test_a_coordinator_of_this_broker_is_called_with_all_partitions_at_once() -> None:
    rig = local()
    several = [*partitions(2, 0), TopicPartition("other", 5)]
    assert await rig.verifier.ask("a", (7, 3), several, TV1) == dict.fromkeys(
        several, ErrorCode.NONE
    )
    (asked,) = rig.coordinators.asked
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("a", 7, 3)
    assert asked.verify_only
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [
        ("topic", [2, 0]),
        ("other", [5]),
    ]
    await ask(rig)
    assert not rig.coordinators.asked[1].verify_only
    assert not rig.tasks


@pytest.mark.asyncio
async def test_without_a_leader_of_its_partition_there_is_no_coordinator() -> None:
    rig = Rig()
    wanted = dict.fromkeys(partitions(0, 1), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await ask(rig, indexes=(0, 1)) == wanted
    rig.lead(-1)
    assert await ask(rig, indexes=(0, 1)) == wanted
    rig.lead(2)
    assert await ask(rig, indexes=(0, 1)) == wanted, "it is not registered"


@pytest.mark.parametrize(
    "error, client, wanted",
    [
        (ErrorCode.PRODUCER_FENCED, TV2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, TV1, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OLD, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
@pytest.mark.asyncio
async def test_errors_are_those_that_a_producer_expects(error, client, wanted) -> None:
    rig = local()
    rig.coordinators.error = error
    (answered,) = (await rig.verifier.ask("a", (7, 3), partitions(0), client)).values()
    assert answered is wanted


@pytest.mark.asyncio
async def test_another_broker_is_asked_for_everything_that_waits_by_one_request(
    until: Until,
) -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        first = asyncio.Event()

        async def answer(request: Any) -> AddPartitionsToTxnResponse:
            if not first.is_set():
                await first.wait()
            return answers_to(request)

        broker.answers[AddPartitionsToTxnRequest] = answer
        asked = [asyncio.ensure_future(ask(rig, name)) for name in ("a", "b", "b", "c")]
        await until(lambda: broker.of(AddPartitionsToTxnRequest))
        more = asyncio.ensure_future(ask(rig, "d", (4,)))
        await asyncio.sleep(0)
        first.set()
        for each in (*asked, more):
            assert set((await each).values()) == {ErrorCode.NONE}
        requests = broker.of(AddPartitionsToTxnRequest)
        names = [[each.transactional_id for each in request.transactions] for request in requests]
        assert names == [["a", "b", "c"], ["b", "d"]]
        assert len(broker.of(ApiVersionsRequest)) == 1, "one connection"
        rig.verifier.close()


@pytest.mark.asyncio
async def test_an_old_and_a_new_client_in_one_verification() -> None:
    """Each gets the errors that its own version knows."""
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        broker.answers[AddPartitionsToTxnRequest] = lambda request: answers_to(
            request, ErrorCode.TRANSACTION_ABORTABLE
        )
        old = rig.verifier.ask("a", (7, 3), partitions(0), OLD)
        new = rig.verifier.ask("b", (8, 3), partitions(0), TV1)
        errors = [error for each in await asyncio.gather(old, new) for error in each.values()]
        assert errors == [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]
        assert len(broker.of(AddPartitionsToTxnRequest)) == 1
        rig.verifier.close()


@pytest.mark.asyncio
async def test_an_answer_to_all_holds_for_each() -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        refused = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.answers[AddPartitionsToTxnRequest] = lambda _: refused
        assert await ask(rig, indexes=(0, 1)) == dict.fromkeys(
            partitions(0, 1), ErrorCode.INVALID_TXN_STATE
        )
        rig.verifier.close()


@pytest.mark.asyncio
async def test_what_an_answer_leaves_out_was_not_answered() -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)

        def answer(request: Any) -> AddPartitionsToTxnResponse:
            request.transactions[0].topics[0].partitions.remove(1)
            request.transactions[1].transactional_id = "somebody"
            return answers_to(request)

        broker.answers[AddPartitionsToTxnRequest] = answer
        a, b = await asyncio.gather(ask(rig, "a", (0, 1)), ask(rig, "b"))
        assert list(a.values()) == [ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION]
        assert list(b.values()) == [ErrorCode.NETWORK_EXCEPTION]
        rig.verifier.close()


@pytest.mark.asyncio
async def test_a_lost_connection_answers_what_was_sent_and_what_waits_is_asked_again() -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        broker.answers[AddPartitionsToTxnRequest] = lambda _: FakeBroker.CLOSE
        first = asyncio.ensure_future(ask(rig, "a"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(ask(rig, "a"))
        assert list((await first).values()) == [ErrorCode.NETWORK_EXCEPTION]
        broker.answers[AddPartitionsToTxnRequest] = answers_to
        assert list((await second).values()) == [ErrorCode.NONE]
        assert list((await ask(rig)).values()) == [ErrorCode.NONE]
        assert len(broker.of(ApiVersionsRequest)) == 2
        rig.verifier.close()


@pytest.mark.asyncio
async def test_a_broker_that_cannot_be_reached_is_a_network_error_each_time() -> None:
    rig = Rig()
    rig.know_broker(1, 1)
    rig.know_broker(2, 1)
    rig.lead(2)
    for _ in range(2):
        assert list((await ask(rig)).values()) == [ErrorCode.NETWORK_EXCEPTION]
    rig.verifier.close()


@pytest.mark.asyncio
async def test_a_broker_that_does_not_serve_it_yet_is_asked_once_it_does() -> None:
    """The feature level reaches brokers one after the other."""
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        broker.answers[AddPartitionsToTxnRequest] = answers_to
        broker.answers[ApiVersionsRequest] = lambda _: ApiVersionsResponse()
        assert list((await ask(rig)).values()) == [ErrorCode.NETWORK_EXCEPTION]
        broker.answers[ApiVersionsRequest] = broker.api_versions
        assert list((await ask(rig)).values()) == [ErrorCode.NONE]
        rig.verifier.close()


@pytest.mark.asyncio
async def test_the_coordinator_of_then_is_asked_when_it_moves() -> None:
    async with FakeBroker().running() as old, FakeBroker().running() as new:
        rig = remote(old)
        old.answers[AddPartitionsToTxnRequest] = lambda request: answers_to(
            request, ErrorCode.NOT_COORDINATOR
        )
        new.answers[AddPartitionsToTxnRequest] = answers_to
        assert list((await ask(rig)).values()) == [ErrorCode.NOT_COORDINATOR]
        rig.know_broker(3, new.port)
        rig.lead(3)
        assert list((await ask(rig)).values()) == [ErrorCode.NONE]
        rig.know_broker(3, old.port)  # it has started again, at another address
        assert list((await ask(rig)).values()) == [ErrorCode.NOT_COORDINATOR]
        rig.lead(1)
        assert list((await ask(rig)).values()) == [ErrorCode.NONE]
        assert len(rig.coordinators.asked) == 1
        rig.verifier.close()


@pytest.mark.asyncio
async def test_a_broker_whose_lease_has_run_out_is_not_waited_for(until: Until) -> None:
    async with FakeBroker().running() as silent, FakeBroker().running() as successor:
        rig, subscription = remote(silent), Subscription()
        following = asyncio.ensure_future(rig.verifier.run(subscription))
        silent.answers[AddPartitionsToTxnRequest] = lambda _: None
        successor.answers[AddPartitionsToTxnRequest] = answers_to
        asked = asyncio.ensure_future(ask(rig))
        await until(lambda: silent.of(AddPartitionsToTxnRequest))
        subscription.publish(rig.image, Changes(parts={"brokers"}))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        rig.unregister(2)
        subscription.publish(rig.image, Changes(parts={"brokers"}))
        assert list((await asked).values()) == [ErrorCode.NETWORK_EXCEPTION]
        rig.know_broker(3, successor.port)
        rig.lead(3)
        assert list((await ask(rig)).values()) == [ErrorCode.NONE]
        asked = asyncio.ensure_future(ask(rig))
        successor.answers[AddPartitionsToTxnRequest] = lambda _: None
        await until(lambda: len(successor.of(AddPartitionsToTxnRequest)) == 2)
        await cancel(following)
        assert list((await asked).values()) == [ErrorCode.NETWORK_EXCEPTION]


@pytest.mark.asyncio
async def test_closing_answers_what_is_asked(until: Until) -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        broker.answers[AddPartitionsToTxnRequest] = lambda _: None
        asked = asyncio.ensure_future(ask(rig))
        await until(lambda: broker.of(AddPartitionsToTxnRequest))
        rig.verifier.close()
        assert list((await asked).values()) == [ErrorCode.NETWORK_EXCEPTION]


@pytest.mark.asyncio
async def test_an_answer_is_not_awaited_from_a_broker_that_has_moved(until: Until) -> None:
    async with FakeBroker().running() as silent, FakeBroker().running() as broker:
        silent.answers[AddPartitionsToTxnRequest] = lambda _: None
        broker.answers[AddPartitionsToTxnRequest] = answers_to
        rig, subscription = remote(silent), Subscription()
        following = asyncio.ensure_future(rig.verifier.run(subscription))
        asked = asyncio.ensure_future(ask(rig))
        await until(lambda: silent.of(AddPartitionsToTxnRequest))
        rig.know_broker(3, 9)
        subscription.publish(rig.image, Changes(parts={"brokers"}))
        await asyncio.sleep(0)
        rig.know_broker(2, broker.port)
        subscription.publish(rig.image, Changes(parts={"brokers"}))
        assert await asked == dict.fromkeys(partitions(0), ErrorCode.NETWORK_EXCEPTION)
        assert await ask(rig) == dict.fromkeys(partitions(0), ErrorCode.NONE)
        following.cancel()


@pytest.mark.asyncio
async def test_an_answer_is_not_awaited_from_a_broker_that_was_replaced_under_its_name(
    until: Until,
) -> None:
    async with FakeBroker().running() as silent:
        silent.answers[AddPartitionsToTxnRequest] = lambda _: None
        rig, subscription = remote(silent), Subscription()
        following = asyncio.ensure_future(rig.verifier.run(subscription))
        asked = asyncio.ensure_future(ask(rig))
        await until(lambda: silent.of(AddPartitionsToTxnRequest))
        rig.know_broker(2, silent.port)
        subscription.publish(rig.image, Changes(parts={"brokers"}))
        async with asyncio.timeout(3):
            assert await asked == dict.fromkeys(partitions(0), ErrorCode.NETWORK_EXCEPTION)
        following.cancel()


@pytest.mark.asyncio
async def test_what_waits_is_answered_when_the_broker_stops(until: Until) -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        broker.answers[AddPartitionsToTxnRequest] = lambda _: None
        asked = [asyncio.ensure_future(ask(rig, name)) for name in ("a", "a", "b")]
        await until(lambda: broker.of(AddPartitionsToTxnRequest))
        (task,) = rig.tasks
        await cancel(task)
        for each in asked:
            assert list((await each).values()) == [ErrorCode.NETWORK_EXCEPTION]
        rig.verifier.close()


@pytest.mark.asyncio
async def test_a_question_whose_asker_has_gone_ends_all_the_same() -> None:
    async with FakeBroker().running() as broker:
        rig = remote(broker)
        broker.answers[AddPartitionsToTxnRequest] = answers_to
        gone = asyncio.ensure_future(ask(rig, "a"))
        await asyncio.sleep(0)
        gone.cancel()
        assert list((await ask(rig, "b")).values()) == [ErrorCode.NONE]
        assert all(task.exception() is None for task in rig.tasks if task.done())
        rig.verifier.close()


@pytest.mark.asyncio
async def test_an_addition_waits_for_the_end_of_the_producers_last_transaction() -> None:
    rig = local(add_partitions_to_txn_retry_backoff_max_ms=10_000)
    rig.coordinators.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    errors = await rig.verifier.ask_patiently("a", (7, 3), partitions(0), TV2)
    assert list(errors.values()) == [ErrorCode.NONE]
    assert len(rig.coordinators.asked) == 4


@pytest.mark.asyncio
async def test_an_addition_does_not_wait_for_ever() -> None:
    rig = local(add_partitions_to_txn_retry_backoff_max_ms=5)
    rig.coordinators.error = ErrorCode.CONCURRENT_TRANSACTIONS
    errors = await rig.verifier.ask_patiently("a", (7, 3), partitions(0), TV2)
    assert list(errors.values()) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert len(rig.coordinators.asked) > 1


@pytest.mark.asyncio
async def test_a_verification_is_not_repeated() -> None:
    rig = local()
    rig.coordinators.error = ErrorCode.CONCURRENT_TRANSACTIONS
    errors = await rig.verifier.ask_patiently("a", (7, 3), partitions(0), TV1)
    assert list(errors.values()) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert len(rig.coordinators.asked) == 1


def test_only_older_clients_are_exempt_from_verification() -> None:
    rig = Rig()
    assert rig.verifier.verifies(TV1)
    off = {"transaction.partition.verification.enable": "false"}
    rig.put(BROKER_CONFIG.key(None), off)
    assert not rig.verifier.verifies(TV1)
    assert rig.verifier.verifies(TV2)
    assert not Rig(static=off).verifier.verifies(OLD)
