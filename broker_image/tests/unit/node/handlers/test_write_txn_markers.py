"""WriteTxnMarkers over a dispatcher: answered at once, or once followers have the markers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.net.peer import Peer
from logfleet.node.dispatch import Dispatcher, RequestContext
from logfleet.node.handlers.write_txn_markers import HANDLERS
from logfleet.node.transactions.marker_appends import MarkerAppends
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request
from logfleet.wire.messages import WriteTxnMarkersRequest

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.partitions.replicas_rig import B, C, fetch, replicated
from broker_image.tests.unit.node.peer_rig import FakeLink
from broker_image.tests.unit.waiting import Until

API = API_BY_NAME["WriteTxnMarkers"]
_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


class Client:
    """A connection to the host's broker."""

    def __init__(self, host: Any) -> None:
        host.transactions = SimpleNamespace(
            marker_appends=MarkerAppends(
                host.partitions,
                host,
                clock=host,
                timeout_s=30.0,
                storage_failed=host.storage_failed,
            )
        )
        self._dispatch = Dispatcher(host, HANDLERS)
        self._peer = Peer("PLAINTEXT")
        self.link = FakeLink(self._peer)

    def send(self, version: int, *markers: _Marker) -> Any:
        """What the dispatcher returns."""
        request = WriteTxnMarkersRequest(markers=list(markers))
        frame = b"".join(encode_request(request, version, 1, "c"))[SIZE_BYTES:]  # type: ignore[arg-type]
        return self._dispatch(self._peer, memoryview(bytearray(frame)))

    async def rows(self, given: Any, version: int) -> dict[tuple[int, str, int], int]:
        """(producer id, topic, partition) -> error, of the answer whenever it comes."""
        answer = await self.link.wait(given)
        _, body = decode_response(API, version, answer[SIZE_BYTES:])
        response: Any = body
        return {
            (result.producer_id, topic.name, row.partition_index): row.error_code
            for result in response.markers
            for topic in result.topics
            for row in topic.partitions
        }


def marker(*indexes: int, producer: int = 7, epoch: int = 3, version: int = 0) -> _Marker:
    return _Marker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[_Topic(name="topic", partition_indexes=list(indexes))],
        coordinator_epoch=5,
        transaction_version=version,
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("version", [1, 2])
async def test_with_one_replica_the_answer_comes_at_once(host: Host, version: int) -> None:
    client = Client(host)
    partition = host.host()
    given = client.send(version, marker(0, 1), marker(0, producer=8))
    assert await client.rows(given, version) == {
        (7, "topic", 0): ErrorCode.NONE,
        (7, "topic", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (8, "topic", 0): ErrorCode.NONE,
    }
    assert partition.log_end_offset == 2


@pytest.mark.asyncio
async def test_the_version_of_the_transaction_is_that_of_the_marker(host: Host) -> None:
    client = Client(host)
    host.host()
    await client.rows(client.send(2, marker(0, epoch=5)), 2)
    for transaction_version, epoch in ((2, 4), (0, 5), (2, 5)):
        sent = marker(0, epoch=epoch, version=transaction_version)
        (error,) = (await client.rows(client.send(2, sent), 2)).values()
        assert (error == ErrorCode.NONE) is (epoch == 5)


@pytest.mark.asyncio
async def test_with_followers_the_answer_comes_once_they_have_the_marker(host: Host) -> None:
    client = Client(host)
    partition = host.host(replicas_state=replicated())
    waiting = asyncio.ensure_future(client.rows(client.send(2, marker(0)), 2))
    await asyncio.sleep(0)
    fetch(partition, B, 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    fetch(partition, C, 1)
    assert await waiting == {(7, "topic", 0): ErrorCode.NONE}


@pytest.mark.asyncio
async def test_a_request_without_markers_has_an_answer_without_results(host: Host) -> None:
    client = Client(host)
    assert await client.rows(client.send(2), 2) == {}
    assert await client.rows(client.send(2, marker()), 2) == {}


@pytest.mark.asyncio
async def test_a_client_that_may_neither_alter_the_cluster_nor_act_as_a_broker_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(host)
    partition = host.host()
    monkeypatch.setattr(RequestContext, "may", lambda *_: False)
    rows = await client.rows(client.send(2, marker(0, 1)), 2)
    assert set(rows.values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert (len(rows), partition.log_end_offset) == (2, 0)


@pytest.mark.asyncio
async def test_a_long_request_is_appended_in_pieces_between_which_others_are_served(
    host: Host,
) -> None:
    client = Client(host)
    partition = host.host()
    long = [marker(*range(300), producer=1), *(marker(0, producer=n) for n in range(2, 4000))]
    waiting = asyncio.ensure_future(client.rows(client.send(2, *long), 2))
    ends = [0]
    while not waiting.done():
        await asyncio.sleep(0)
        if partition.log_end_offset != ends[-1]:
            ends.append(partition.log_end_offset)
    assert len(ends) > 3, "it was appended in one step"
    assert ends[-1] == 3999
    rows = await waiting
    assert [key for key, error in rows.items() if error] == [(1, "topic", n) for n in range(1, 300)]
    assert len(rows) == 300 + 3998


@pytest.mark.asyncio
async def test_a_long_request_is_answered_once_followers_have_all_its_markers(
    host: Host, until: Until
) -> None:
    client = Client(host)
    partition = host.host(replicas_state=replicated())
    long = [marker(0, producer=n) for n in range(250)]
    waiting = asyncio.ensure_future(client.rows(client.send(2, *long), 2))
    await until(lambda: partition.log_end_offset == 250)
    for end in (100, 249, 250):
        assert not waiting.done()
        fetch(partition, B, end)
        fetch(partition, C, end)
        await asyncio.sleep(0)
    assert set((await waiting).values()) == {ErrorCode.NONE}
