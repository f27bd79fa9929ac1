"""Three whole brokers that work; of some of them the leases are no longer answered."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.clock import boot_s, monotonic_ms
from logfleet.metadata.kinds.brokers import FENCE, FENCED, FenceValue
from logfleet.metadata.store import Put, Txn
from logfleet.node.broker import Broker
from logfleet.replication.failsafe import EXTENSION_S
from logfleet.replication.leader import LeaderReplicas
from logfleet.telemetry.decisions import Kind
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DescribeClusterRequest, DescribeClusterResponse

from broker_image.tests.unit.controller.running.controller_rig import recorded
from broker_image.tests.unit.node.broker_rig import ask_broker
from broker_image.tests.unit.node.replication.fleet_rig import Fleet, fleet_of, until

pytestmark = pytest.mark.asyncio

TTL_S = 3


class SilentLease:
    """A lease without answered keepalives, whose deadline has passed."""

    id = 1
    ttl_s = TTL_S

    def __init__(self) -> None:
        self.deadline_s = boot_s() - 1

    def answered(self) -> None:
        self.deadline_s = boot_s() + 3_600

    async def lost(self) -> None: ...

    async def revoke(self) -> None: ...


def silence(*brokers: Broker) -> list[SilentLease]:
    """From now on the store does not answer these brokers."""
    leases = [SilentLease() for _ in brokers]
    for broker, lease in zip(brokers, leases, strict=True):
        broker.rooms.failsafe._rules._checked_s = boot_s()
        tenure = broker.opened.dispatcher.lease = broker.rooms.failsafe.registered(lease)
        tenure.extended_s = boot_s() + EXTENSION_S
    return leases


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """`shared` is led by broker 1, and all brokers are in sync; `alone` has broker 1 only."""
    async with fleet_of(tmp_path / "fleet", 1, 2, 3) as made:
        await made.create_topic("shared", 1, 2, 3)
        await made.create_topic("alone", 1)
        for topic in ("shared", "alone"):
            assert (await made.produce(topic, b"before")).error_code == 0
        yield made


def deadline_s(broker: Broker) -> float:
    """Until then it may answer as a leader."""
    assert broker.opened.dispatcher.lease is not None
    return broker.opened.dispatcher.lease.deadline_s


def serves(broker: Broker, topic: str) -> bool:
    return broker.rooms.partitions.get(topic, 0) is not None


async def test_a_leader_goes_on_with_what_its_followers_fetch_and_suspends_what_it_has_alone(
    fleet: Fleet,
) -> None:
    """The store answers the other brokers: one of them may be elected."""
    leader = fleet.brokers[1]
    silence(leader)
    await until(lambda: not serves(leader, "alone"))
    assert leader.rooms.partitions.find("alone", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.rooms.hosting.leadership.suspended == 1
    past_s = deadline_s(leader)
    await until(lambda: deadline_s(leader) > past_s)
    assert (await fleet.produce("shared", b"while silent")).error_code == 0


async def test_what_was_suspended_goes_on_in_its_leader_epoch_once_the_store_answers(
    fleet: Fleet,
) -> None:
    leader = fleet.brokers[1]
    epoch = leader.rooms.partitions.get("alone", 0).leader_epoch  # type: ignore[union-attr]
    (lease,) = silence(leader)
    await until(lambda: not serves(leader, "alone"))
    lease.answered()
    await until(lambda: serves(leader, "alone"))
    assert leader.rooms.partitions.get("alone", 0).leader_epoch == epoch  # type: ignore[union-attr]
    assert (await fleet.produce("alone", b"after")).base_offset == 1
    assert recorded(leader.decisions, Kind.FAILSAFE_BEGAN)
    assert recorded(leader.decisions, Kind.FAILSAFE_ENDED)


async def test_nothing_is_suspended_while_most_brokers_hear_nothing_of_the_store_either(
    fleet: Fleet,
) -> None:
    """So no broker can be elected: the whole fleet goes on, partitions with one replica too."""
    leader = fleet.brokers[1]
    peers, rules = leader.rooms.failsafe._peers, leader.rooms.failsafe._rules
    leases = silence(*fleet.brokers.values())
    peers.start(peers.active(), rules.peer_answered)
    await until(
        lambda: (
            rules.is_majority_silent(0, peers.active())
            or leader.rooms.hosting.leadership.suspended == 1
        )
    )
    await until(lambda: serves(leader, "alone"))
    past_s = deadline_s(leader)
    await until(lambda: deadline_s(leader) > past_s + 1)
    for topic in ("alone", "shared"):
        assert (await fleet.produce(topic, b"while silent")).error_code == 0
    for lease in leases:
        lease.answered()
    await until(lambda: not leader.rooms.failsafe.is_active)


async def test_a_partition_that_its_follower_has_left_is_suspended(fleet: Fleet) -> None:
    """It may be led elsewhere by now, and this broker does not learn it."""
    leader, follower = fleet.brokers[1], fleet.brokers[2]
    silence(leader)
    await until(lambda: not serves(leader, "alone"))
    topic_id = fleet.any.image.topic("shared").id  # type: ignore[union-attr]
    follower.rooms.hosting.following.end(follower.rooms.partitions.replica(topic_id, 0))  # type: ignore[arg-type]
    await until(lambda: not serves(leader, "shared"))


async def test_a_leader_that_was_replaced_goes_on_by_no_later_silence_of_its_peers(
    fleet: Fleet,
) -> None:
    """It was cut off alone, and another broker leads. Then the store goes away for all of them."""
    leader, *others = fleet.brokers.values()
    silence(leader)
    await until(lambda: not serves(leader, "alone"))
    follower = leader.rooms.metadata
    stale = follower.image  # what a broker sees that is cut off
    fence = FENCE.encode(FenceValue(stale.brokers[1].epoch, FENCED))
    follower._publish = lambda *_: None  # type: ignore[method-assign]
    await fleet.store.txn(Txn(success=[Put(FENCE.key(1), fence)]))
    await until(lambda: all(each.image.brokers[1].is_fenced for each in others))
    silence(*others)
    asked_ms = monotonic_ms()
    peers, rules = leader.rooms.failsafe._peers, leader.rooms.failsafe._rules
    peers.start(peers.active(), rules.peer_answered)
    await until(lambda: monotonic_ms() > asked_ms + 3_000)
    assert not rules.is_majority_silent(0, peers.active())
    assert not serves(leader, "alone")
    del follower._publish
    await follower._read_snapshot(await fleet.store.range(""))  # so that it can stop at once


async def test_a_suspended_partition_goes_on_when_its_followers_ask_for_it_again(
    fleet: Fleet,
) -> None:
    leader = fleet.brokers[1]
    silence(leader)
    await until(lambda: not serves(leader, "alone"))
    partition = leader.rooms.partitions.get("shared", 0)
    assert partition is not None
    leader.rooms.hosting.leadership.suspend(partition)
    await until(lambda: serves(leader, "shared"))
    assert (await fleet.produce("shared", b"again")).error_code == 0


async def test_a_leader_beside_eligible_leaders_is_not_followed_by_all_who_could_be_elected(
    fleet: Fleet,
) -> None:
    """The controller may elect one of them cleanly, and none of them fetches (KIP-966)."""
    leader = fleet.brokers[1]
    replicas = leader.rooms.partitions.get("shared", 0).replicas_state  # type: ignore[union-attr]
    isr = replicas.state.isr[:2]
    state = replicas.state.changed(isr=isr, elr=(3,), min_isr=3)
    topic_id = fleet.any.image.topic("shared").id  # type: ignore[union-attr]
    assert leader.rooms.failsafe._is_followed((topic_id, 0), replicas, 0)
    beside_eligible = LeaderReplicas(1, state, 0, ends=replicas.ends, lag_max_ms=1_000, now_ms=0)
    assert not leader.rooms.failsafe._is_followed((topic_id, 0), beside_eligible, 0)


async def test_what_waits_is_not_answered_under_a_later_registration(fleet: Fleet) -> None:
    leader = fleet.brokers[1]
    before = leader.opened.dispatcher.lease
    assert before is not None
    leader.rooms.failsafe.unregistered()
    leader.rooms.failsafe.registered(SilentLease())
    assert before.deadline_s == 0.0


async def test_a_process_that_was_stopped_answers_nothing_until_others_confirm_it_again(
    fleet: Fleet,
) -> None:
    """What waited in its sockets does not count: it may be older than another's election."""
    leader = fleet.brokers[1]
    silence(leader)
    await until(lambda: not serves(leader, "alone"))
    leader.rooms.failsafe._rules._checked_s -= 10
    leader.opened.dispatcher.lease.extended_s = 0.0  # type: ignore[union-attr]
    await leader.rooms.failsafe._check()
    assert deadline_s(leader) < boot_s()
    await until(lambda: deadline_s(leader) > boot_s())
    assert serves(leader, "shared")


async def test_a_broker_that_gets_no_answer_from_the_store_reports_it(fleet: Fleet) -> None:
    async def described() -> DescribeClusterResponse:
        request = DescribeClusterRequest(include_fenced_brokers=True)
        answer = await ask_broker(fleet.brokers[1], request, 2)
        assert isinstance(answer, DescribeClusterResponse)
        return answer

    before = await described()
    assert (before.controller_id, [each.is_fenced for each in before.brokers]) == (
        fleet.brokers[1].image.controller.broker,  # type: ignore[union-attr]
        [False] * 3,
    )
    (lease,) = silence(fleet.brokers[1])
    silent = await described()
    assert silent.controller_id == -1
    assert {each.broker_id for each in silent.brokers if each.is_fenced} == {1}
    lease.answered()
    assert await described() == before
