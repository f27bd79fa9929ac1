"""Changes that reach another broker than the controller."""

import asyncio
from typing import cast

import pytest
import pytest_asyncio
from logfleet.auth.principal import ANONYMOUS, Principal
from logfleet.client.connection import Connection
from logfleet.client.errors import ConnectionLost
from logfleet.controller.running.access import ControllerWork, Origin
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue, Endpoint
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.metadata.kinds.topics import TOPIC
from logfleet.metadata.store import Txn
from logfleet.net.connection import CloseConnection
from logfleet.node.handlers.admin.routes import WORK
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, encode_request
from logfleet.wire.messages import (
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    EnvelopeRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
)

from broker_image.tests.unit.controller.running.controller_rig import until

pytestmark = pytest.mark.asyncio


def creation(name: str, timeout_ms: int = 10_000) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


async def create(node, name: str, timeout_ms: int = 10_000, version: int | None = None):
    (row,) = (await node.ask(creation(name, timeout_ms), version)).topics
    return ErrorCode(row.error_code).name


@pytest_asyncio.fixture
async def fleet(start):
    controller = await start(1)
    await controller.register()
    other = await start(2, stands=False)
    await other.register()
    return controller, other


async def test_another_broker_forwards_and_answers_when_it_knows_itself(fleet, versions):
    controller, other = fleet
    for version in versions(CreateTopicsRequest):
        assert await create(other, f"t{version}", version=version) == "NONE"
        assert other.image.topic(f"t{version}") is not None
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="segment.ms", value="5")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name="t7", configs=[change]
    )
    await other.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert other.image.topic("t7").configs == {"segment.ms": "5"}
    gone = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="t7")], timeout_ms=10_000
    )
    (row,) = (await other.ask(gone)).responses
    assert row.error_code == 0
    assert other.image.topic("t7") is None
    assert controller.controller.is_controller
    assert not other.controller.is_controller


async def test_refusals_of_the_controller_come_back_as_they_are(fleet):
    _, other = fleet
    assert await create(other, "bad name") == "INVALID_TOPIC_EXCEPTION"


async def test_without_a_controller_the_client_has_to_find_one(start):
    node = await start(1, stands=False)
    await node.until(lambda image: image.revision)
    assert await create(node, "t", timeout_ms=10) == "NOT_CONTROLLER"


async def test_a_controller_elected_meanwhile_gets_the_request(start):
    other = await start(2, stands=False)
    await other.until(lambda image: image.revision)
    asking = asyncio.ensure_future(create(other, "t"))
    controller = await start(1)
    await controller.register()
    assert await asking == "NONE"


async def test_a_controller_that_is_gone_is_not_waited_for_longer_than_asked(start):
    other = await start(2, stands=False)
    nowhere = BrokerValue("i", (Endpoint("PLAINTEXT", "127.0.0.1", 1),))
    await other.write(
        BROKER.put(1, nowhere),
        CONTROLLER.put(None, ControllerValue(1, "i")),
    )
    assert await create(other, "t", timeout_ms=300) == "NOT_CONTROLLER"


async def test_a_broker_that_is_not_the_controller_any_more_reports_it_and_the_next_is_asked(fleet):
    controller, other = fleet
    assert await create(other, "before") == "NONE"
    envelope = EnvelopeRequest(
        request_data=inner(creation("t")), client_host_address=bytes([127, 0, 0, 1])
    )
    answer = await other.ask(envelope)
    assert ErrorCode(answer.error_code) is ErrorCode.NOT_CONTROLLER
    await controller.write(CONTROLLER.delete(None))
    assert await create(other, "after") == "NONE", "whoever is elected next does it"


async def test_a_request_that_waits_for_a_connection_asks_the_present_controller(
    start, monkeypatch
):
    """A node that has vanished is not tried once more by each request that came while it was."""
    other = await start(2, stands=False)
    vanished = BrokerValue("i", (Endpoint("PLAINTEXT", "127.0.0.1", 1),))
    await other.write(
        BROKER.put(1, vanished),
        CONTROLLER.put(None, ControllerValue(1, "i")),
    )
    connect, tried, given_up = Connection.connect, [], asyncio.Event()

    async def connect_slowly(host, port, client_id):
        tried.append(port)
        if port == 1:
            await given_up.wait()
            raise ConnectionLost("nobody there")
        return await connect(host, port, client_id)

    monkeypatch.setattr(Connection, "connect", connect_slowly)
    asking = [asyncio.ensure_future(create(other, name)) for name in "abc"]
    await other.write(CONTROLLER.delete(None), BROKER.delete(1))
    controller = await start(3)
    await controller.register()
    await other.until(lambda image: image.controller is not None and 3 in image.brokers)
    assert tried == [1]
    given_up.set()
    assert await asyncio.gather(*asking) == ["NONE"] * 3
    assert tried == [1, controller.port]


@pytest_asyncio.fixture(params=["controller", "other"])
async def replaced_once(fleet, monkeypatch, request):
    """A broker, and a count of operations: at the second one its controller is replaced."""
    controller, other = fleet
    submit, count = controller.controller.submit, []

    async def replaced_at_the_second(operation):
        count.append(operation)
        if len(count) == 2:
            await controller.store.txn(Txn(success=[CONTROLLER.delete(None)]))
        return await submit(operation)

    monkeypatch.setattr(controller.controller, "submit", replaced_at_the_second)
    return (controller if request.param == "controller" else other), count


REFUSED = ErrorCode.REQUEST_TIMED_OUT


def errors_by_name(rows) -> dict[str, int]:
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: row.error_code for row in rows}


async def once_there_is_a_controller(node) -> None:
    await until(lambda: node.image.controller is not None)


async def test_a_creation_whose_controller_is_replaced_is_answered_topic_by_topic(replaced_once):
    node, count = replaced_once
    topics = [creation(name).topics[0] for name in "abc"]
    answer = await node.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    assert errors_by_name(answer.topics) == {"a": 0, "b": REFUSED, "c": REFUSED}
    assert REFUSED.retriable
    assert "retry" in answer.topics[1].error_message
    assert node.image.topic("a") is not None
    await once_there_is_a_controller(node)
    assert node.image.topic("b") is None, "what was refused has not been done"
    again = await node.ask(CreateTopicsRequest(topics=topics[1:], timeout_ms=10_000))
    assert errors_by_name(again.topics) == {"b": 0, "c": 0}
    assert len(count) == 5, "a was asked for once, and the rest twice"


async def test_a_growth_whose_controller_is_replaced_adds_no_partition_twice(replaced_once):
    node, count = replaced_once
    for name in "ab":
        count.clear()
        assert await create(node, name) == "NONE"
    growing = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [growing(name=name, count=3, assignments=None) for name in "ab"]
    count.clear()
    answer = await node.ask(CreatePartitionsRequest(topics=topics, timeout_ms=10_000))
    assert errors_by_name(answer.results) == {"a": 0, "b": REFUSED}
    await once_there_is_a_controller(node)
    assert [len(node.image.topic(name).partitions) for name in "ab"] == [3, 1]
    again = await node.ask(CreatePartitionsRequest(topics=topics[1:], timeout_ms=10_000))
    assert errors_by_name(again.results) == {"b": 0}
    assert [len(node.image.topic(name).partitions) for name in "ab"] == [3, 3]


@pytest.mark.parametrize("version", [5, 6])
async def test_a_deletion_whose_controller_is_replaced_is_answered_topic_by_topic(
    replaced_once, version
):
    node, count = replaced_once
    for name in "abc":
        count.clear()
        assert await create(node, name) == "NONE"

    def deletion(names: str) -> DeleteTopicsRequest:
        if version < 6:
            return DeleteTopicsRequest(timeout_ms=10_000, topic_names=list(names))
        kind = DeleteTopicsRequest.DeleteTopicState
        by_id = {"b": kind(topic_id=node.image.topic("b").id)}
        return DeleteTopicsRequest(
            timeout_ms=10_000, topics=[by_id.get(name, kind(name=name)) for name in names]
        )

    count.clear()
    first = (await node.ask(deletion("abc"), version)).responses
    assert [row.error_code for row in first] == [0, REFUSED, REFUSED]
    await once_there_is_a_controller(node)
    assert [node.image.topic(name) is None for name in "abc"] == [True, False, False]
    again = (await node.ask(deletion("bc"), version)).responses
    assert errors_by_name(again) == {"b": 0, "c": 0}
    assert [node.image.topic(name) for name in "abc"] == [None, None, None]


async def test_a_request_that_no_controller_has_begun_goes_to_the_next_as_a_whole(replaced_once):
    node, count = replaced_once
    count.append("the first")  # so that the request's first operation is the second
    topics = [creation(name).topics[0] for name in "ab"]
    answer = await node.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    assert errors_by_name(answer.topics) == {"a": 0, "b": 0}


@pytest.mark.parametrize("asked", [0, 1], ids=["controller", "other"])
async def test_a_creation_in_flight_as_its_controller_is_replaced_is_no_topic_that_exists_already(
    fleet, monkeypatch, asked
):
    controller, _ = fleet
    txn, answering, done = controller.store.txn, asyncio.Event(), asyncio.Event()

    async def answered_late(wanted):
        result = await txn(wanted)
        if any(write.key == TOPIC.key("t") for write in wanted.success):
            done.set()
            await answering.wait()
        return result

    monkeypatch.setattr(controller.store, "txn", answered_late)
    creating = asyncio.ensure_future(create(fleet[asked], "t"))
    await until(done.is_set)
    await controller.write(CONTROLLER.delete(None))
    await until(lambda: not controller.controller.is_controller)
    answering.set()
    assert await creating == "NONE"


async def test_a_lost_connection_is_made_again(fleet):
    _, other = fleet
    assert await create(other, "a") == "NONE"
    other.controller_access.close()
    assert await create(other, "b") == "NONE"


async def test_an_answer_that_is_lost_is_not_asked_for_again(start):
    """The topic may have been created: asking again could refuse it as already there."""
    other, controller = await start(2, stands=False), await start(1, stands=False)
    envelopes = []

    def hangs_up(peer, frame):
        if frame[:2] == b"\x00\x3a":
            envelopes.append(bytes(frame))
            raise CloseConnection("lost")
        return controller.dispatcher(peer, frame)

    controller.listener.service = hangs_up
    there = BrokerValue("i", (Endpoint("PLAINTEXT", "127.0.0.1", controller.port),))
    await other.write(
        BROKER.put(1, there),
        CONTROLLER.put(None, ControllerValue(1, "i")),
    )
    assert await create(other, "t") == "REQUEST_TIMED_OUT"
    assert len(envelopes) == 1


def inner(request) -> bytes:
    version = api_of(type(request)).max_version
    return b"".join(cast("list[bytes]", encode_request(request, version, 3, "c")))[SIZE_BYTES:]


LOCALHOST = bytes([127, 0, 0, 1])


@pytest.mark.parametrize(
    "data, address, listener, error",
    [
        (inner(creation("t")), LOCALHOST, "OTHER", "CLUSTER_AUTHORIZATION_FAILED"),
        (inner(MetadataRequest(topics=None)), LOCALHOST, "PLAINTEXT", "INVALID_REQUEST"),
        (inner(creation("t")), b"123", "PLAINTEXT", "INVALID_REQUEST"),
        (inner(creation("t"))[:-4], LOCALHOST, "PLAINTEXT", "INVALID_REQUEST"),
        (b"", LOCALHOST, "PLAINTEXT", "INVALID_REQUEST"),
        (b"\x7f\x7f" + inner(creation("t"))[2:], LOCALHOST, "PLAINTEXT", "INVALID_REQUEST"),
        (b"\x00\x13\x00\x63" + inner(creation("t"))[4:], LOCALHOST, "PLAINTEXT", "UNSUPPORTED"),
    ],
)
async def test_an_envelope_carries_only_changes_and_only_between_brokers(
    node, data, address, listener, error
):
    envelope = EnvelopeRequest(request_data=data, client_host_address=address)
    answer = await node.ask(envelope, listener=listener)
    assert ErrorCode(answer.error_code).name.startswith(error)
    assert answer.response_data is None
    assert node.image.topic("t") is None


ALICE = Principal("User", "alice")


@pytest.mark.parametrize(
    "origin",
    [
        Origin(7, ALICE, "app", "10.0.0.9"),
        Origin(7, Principal("User", "a=b,c", is_token_authenticated=True), None, "::1"),
    ],
)
async def test_the_controller_sees_who_asked_another_broker(fleet, monkeypatch, origin):
    _, other = fleet
    seen, run = [], ControllerWork.run

    async def running(work, access, request, origin):
        seen.append((access.config.node_id, origin))
        return await run(work, access, request, origin)

    monkeypatch.setattr(ControllerWork, "run", running)
    work = WORK[CreateTopicsRequest]
    answer = await other.controller_access.perform(work, creation("t"), origin)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert seen == [(1, origin)]


async def test_a_broker_that_names_nobody_forwards_for_anybody(node, monkeypatch):
    seen = []

    async def running(_work, _access, _request, origin):
        seen.append(origin.principal)
        return CreateTopicsResponse()

    monkeypatch.setattr(ControllerWork, "run", running)
    for principal in (None, b""):
        envelope = EnvelopeRequest(
            request_data=inner(creation("t")),
            request_principal=principal,
            client_host_address=LOCALHOST,
        )
        assert (await node.ask(envelope)).error_code == ErrorCode.NONE
    assert seen == [ANONYMOUS] * 2


@pytest.mark.parametrize("principal", [b"\0", b"\0\1\5User\2a\0\0", b"\0\0\5User\7a"])
async def test_a_principal_that_cannot_be_read_is_refused(node, principal):
    envelope = EnvelopeRequest(
        request_data=inner(creation("t")),
        request_principal=principal,
        client_host_address=LOCALHOST,
    )
    answer = await node.ask(envelope)
    assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    assert node.image.topic("t") is None


async def test_envelopes_are_not_advertised(node):
    answer = await node.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1")
    )
    advertised = {row.api_key for row in answer.api_keys}
    assert 58 not in advertised
    assert {3, 19, 20, 22, 32, 37, 44, 60, 75} <= advertised
