import asyncio
import socket

import pytest
from logfleet.client import cluster
from logfleet.client.cluster import Client, backoff_seconds
from logfleet.client.connection import CONNECT_TIMEOUT_SECONDS
from logfleet.client.errors import ConnectionLost, KafkaError
from logfleet.client.metadata import DOUBTED_AGE_MS_MAX, Node
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio


async def test_making_a_client_needs_no_broker() -> None:
    Client("127.0.0.1:1").close()


async def test_the_next_address_is_tried() -> None:
    async with FakeBroker().running() as gone:
        dead = gone.bootstrap
    async with FakeBroker().running() as broker, Client(f"{dead},{broker.bootstrap}") as client:
        assert (await client.any()).port == broker.port
    async with Client(dead) as client:
        with pytest.raises(ConnectionLost, match="cannot connect"):
            await client.any()


async def test_an_address_that_does_not_answer_keeps_nobody_waiting_for_long() -> None:
    began = asyncio.get_running_loop().time()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, nobody reads
        port = silent.getsockname()[1]
        async with (
            FakeBroker().running() as broker,
            Client(f"127.0.0.1:{port},{broker.bootstrap}") as client,
        ):
            assert (await client.any()).port == broker.port
            assert asyncio.get_running_loop().time() - began < CONNECT_TIMEOUT_SECONDS / 2


async def test_a_broker_that_has_answered_is_asked_first() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        await client.topic("t")
        await client.broker(await client.leader_of("t", 0))
        client.addresses = [("127.0.0.1", 1), *client.addresses]
        (await client.any()).close()
        assert (await client.any()).port == broker.port


async def test_connections_are_shared_and_made_anew_when_lost() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        first, second = await asyncio.gather(client.any(), client.any())
        assert first is second
        assert len(broker.of(ApiVersionsRequest)) == 1
        first.close()
        assert await client.any() is not first
        await client.topic("t")
        leader = await client.leader_of("t", 0)
        assert await client.broker(leader) is not await client.broker(leader, "fetch")
        assert await client.broker(leader, "fetch") is await client.broker(leader, "fetch")


async def test_topics_are_asked_for_once() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        for _ in range(3):
            assert len((await client.topic("t")).partitions) == 2
        assert len(broker.of(MetadataRequest)) == 1
        client.metadata.forget(["t"])
        await client.topic("t")
        assert len(broker.of(MetadataRequest)) == 2


async def test_an_unknown_topic_or_partition_is_an_error() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        with pytest.raises(KafkaError, match="topic nope") as unknown:
            await client.topic("nope")
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="t-7"):
            await client.leader_of("t", 7)
        assert all(not request.allow_auto_topic_creation for request in broker.of(MetadataRequest))


async def test_a_partition_without_leader_may_get_one_later() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:

        def electing(request: MetadataRequest):
            answer = broker.metadata(request)
            if len(broker.of(MetadataRequest)) == 1:
                answer.topics[0].partitions[0].leader_id = -1
            return answer

        broker.answers[MetadataRequest] = electing
        leader = await client.retrying(lambda: client.leader_of("t", 0), topics=["t"])
        assert leader == 1


async def test_retrying_ends_with_the_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def refused() -> None:
        nonlocal calls
        calls += 1
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    async def busy() -> None:
        nonlocal calls
        calls += 1
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    client = Client("127.0.0.1:1")
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        await client.retrying(refused)
    assert calls == 1
    # pauses of which the second never fits, on no machine
    monkeypatch.setattr(cluster, "backoff_seconds", lambda attempt, _: (0.001, 3_600)[attempt])
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await client.retrying(busy, timeout_ms=60_000)
    assert calls == 3


async def test_pauses_grow_up_to_a_second() -> None:
    pauses = [backoff_seconds(attempt) for attempt in range(6)]
    assert DOUBTED_AGE_MS_MAX / 1000 == 0.08 <= pauses[0] <= 0.12
    assert 0.16 <= pauses[1] <= 0.24
    assert 0.8 <= pauses[5] <= 1.2
    assert backoff_seconds(10_000) <= 1.2


async def test_an_ending_transaction_is_waited_for_in_short_pauses_at_first() -> None:
    ending = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    pauses = [backoff_seconds(attempt, ending) for attempt in range(12)]
    assert pauses[0] < 0.003
    assert sum(pauses[:5]) < 0.08
    assert 0.8 <= pauses[-1] <= 1.2
    assert backoff_seconds(0, KafkaError(ErrorCode.NOT_COORDINATOR)) >= 0.08


async def test_a_coordinator_is_looked_up_once_and_again_when_forgotten() -> None:
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        for _ in range(2):
            assert (await client.coordinator("g")).port == broker.port
        assert [request.coordinator_keys for request in broker.of(FindCoordinatorRequest)] == [
            ["g"]
        ]
        client.forget_coordinator("g")
        await client.coordinator("g")
        assert len(broker.of(FindCoordinatorRequest)) == 2
        missing = FindCoordinatorResponse.Coordinator(key="h", node_id=-1, error_code=15)
        broker.answers[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(
            coordinators=[missing]
        )
        with pytest.raises(KafkaError, match="coordinator of h"):
            await client.coordinator("h")


async def dead_port() -> int:
    """A port at which nobody listens."""
    async with FakeBroker().running() as gone:
        return gone.port


async def test_a_coordinator_is_where_the_answer_says_and_not_where_it_was() -> None:
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        client.metadata.learn(Node(1, "127.0.0.1", await dead_port()))
        assert (await client.coordinator("g")).port == broker.port
        assert client.metadata.nodes[1] == Node(1, "127.0.0.1", broker.port)
        assert broker.of(MetadataRequest) == []


async def test_a_broker_that_is_not_where_it_was_is_looked_up_anew() -> None:
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        client.metadata.learn(Node(1, "127.0.0.1", await dead_port()))
        with pytest.raises(ConnectionLost, match="cannot connect"):
            await client.broker(1)
        assert (await client.broker(1)).port == broker.port
        assert len(broker.of(MetadataRequest)) == 1
        assert await client.broker(1, "group") is not await client.broker(1)
        assert len(broker.of(MetadataRequest)) == 1


async def test_a_broker_that_was_never_heard_of_is_looked_up() -> None:
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        assert (await client.broker(1)).port == broker.port
        with pytest.raises(ConnectionLost, match="broker 2 is not in the metadata"):
            await client.broker(2)
