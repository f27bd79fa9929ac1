import asyncio
from collections.abc import Callable

import pytest
from logfleet.io.clock import monotonic_ms
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.kinds.brokers import ACTIVE, BrokerValue, Endpoint
from logfleet.node.cluster import silent_peers
from logfleet.node.cluster.silent_peers import SilentPeers, confirms
from logfleet.replication.failsafe import Failsafe
from logfleet.types import BrokerEpoch
from logfleet.wire.messages import DescribeClusterRequest, DescribeClusterResponse

from broker_image.tests.unit.client.fake_broker import FakeBroker

ME, PEER = 1, 2
PATIENCE_S = 20


def described(controller_id: int, *fenced: int) -> DescribeClusterResponse:
    """What the peer answers; the brokers in `fenced` are, by its word."""
    brokers = [
        DescribeClusterResponse.DescribeClusterBroker(broker_id=each, is_fenced=each in fenced)
        for each in (ME, PEER)
    ]
    return DescribeClusterResponse(controller_id=controller_id, brokers=brokers)


@pytest.mark.parametrize(
    "answer, silent",
    [
        (described(-1, PEER), True),
        (described(1, PEER), False),  # the controller has fenced it
        (described(-1), False),  # no controller has been elected yet
        (described(-1, ME), False),
        (described(-1, ME, PEER), False),  # this broker had been replaced before
        (DescribeClusterResponse(controller_id=-1), False),
    ],
)
def test_a_peer_confirms_only_a_broker_that_it_lists_as_registered(
    answer: DescribeClusterResponse, *, silent: bool
) -> None:
    assert confirms(answer, PEER, ME) is silent


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.005)


@pytest.mark.asyncio
async def test_peers_are_asked_again_and_again_while_they_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silent_peers, "ASK_S", 0.01)
    async with FakeBroker().running() as broker:
        answers = [described(-1, PEER)]
        broker.answers[DescribeClusterRequest] = lambda _: answers[0]
        address = (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),)
        brokers = {
            each: Broker(each, BrokerEpoch(each), BrokerValue("", address), ACTIVE)
            for each in (ME, PEER)
        }
        peers = SilentPeers(ME, "PLAINTEXT", lambda: ClusterImage(1, brokers=brokers))
        rules = Failsafe()

        def confirmed(since_ms: int) -> bool:
            return rules.is_majority_silent(since_ms, peers.active())

        assert peers.active() == {PEER}
        began_ms = monotonic_ms()
        for _ in range(2):  # the second time changes nothing
            peers.start(peers.active(), rules.peer_answered)
        await until(lambda: confirmed(began_ms))
        assert not confirmed(monotonic_ms() + 60_000), "an answer grows old"
        broker.disconnect()
        again_ms = monotonic_ms() + 1
        await until(lambda: confirmed(again_ms))
        answers[0] = described(ME)
        await until(lambda: not confirmed(began_ms))
        answers[0] = described(-1, PEER)
        await until(lambda: confirmed(began_ms))
        await peers.stop()
        assert peers._asking == {}
        assert all(each.include_fenced_brokers for each in broker.of(DescribeClusterRequest))
