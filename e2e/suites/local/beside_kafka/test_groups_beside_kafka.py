"""Limits, timers and static members of classic groups, on a broker of ours and on Apache Kafka 4.4.0: the same steps, the same outcome."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare.side import Side as Asker
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
PATIENCE_S = 60.0
DELAY_MS = 3_000
CONFIG = {
    "group.max.size": "2",
    "group.min.session.timeout.ms": "7000",
    "group.max.session.timeout.ms": "120000",
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "offsets.retention.check.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
}
REBALANCE_MS = 30_000
"""Kafka waits so long for a member that it has refused itself; members have so long to come back over a restart."""
JOIN_VERSION = 3
"""The last in which a new member joins in one step."""
COMMIT_VERSION = 2
"""Of those that bring a retention time."""


class Member:
    """One consumer of the group g, with a connection of its own, as a join is answered late."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = WireConnection(port)
        self.member_id, self.generation, self.leads = "", -1, False

    def close(self) -> None:
        self.connection.socket.close()

    def reconnect(self) -> None:
        self.close()
        self.connection = WireConnection(self.port)

    def ask(self, session_ms: int = 120_000, group: str = "g") -> None:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.connection.send(request, JOIN_VERSION)

    def joined(self) -> str:
        """How the join ended; the member keeps what it was told."""
        answer = self.connection.receive(m.JoinGroupRequest, JOIN_VERSION)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = bool(answer.members)
        return ErrorCode(answer.error_code).name

    def join(self, session_ms: int = 120_000, group: str = "g") -> str:
        self.ask(session_ms, group)
        return self.joined()

    def sync(self, *assigned: str) -> str:
        kind = m.SyncGroupRequest.SyncGroupRequestAssignment
        request = m.SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[kind(member_id=each, assignment=b"a") for each in assigned],
        )
        return ErrorCode(self.connection.call(request, 3).error_code).name

    def beat(self) -> str:
        request = m.HeartbeatRequest(
            group_id="g", generation_id=self.generation, member_id=self.member_id
        )
        return ErrorCode(self.connection.call(request, 3).error_code).name

    def leave(self, group: str) -> str:
        request = m.LeaveGroupRequest(group_id=group, member_id=self.member_id)
        return ErrorCode(self.connection.call(request, 2).error_code).name


class Static:
    """An instance of a static member of the group st. told: how its joins ended, as far as two brokers can be compared."""

    def __init__(self, port: int, instance: str) -> None:
        self.connection = WireConnection(port)
        self.instance = instance
        self.member_id, self.generation = "", -1

    def close(self) -> None:
        self.connection.socket.close()

    def ask(self, version: int, metadata: bytes = b"m") -> None:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
        request = m.JoinGroupRequest(
            group_id="st",
            session_timeout_ms=120_000,
            rebalance_timeout_ms=60_000,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.connection.send(request, version)

    def joined(self, version: int) -> Any:
        answer = self.connection.receive(m.JoinGroupRequest, version)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def restart(self, version: int, old: "Static", metadata: bytes = b"m") -> list[Any]:
        """Join in the place of another instance. What it is told of its generation, of the leader and of what to do."""
        self.ask(version, metadata)
        answer = self.joined(version)
        names = {old.member_id: "the old one", self.member_id: "itself"}
        leader = names.get(answer.leader, "another")
        said = [ErrorCode(answer.error_code).name, self.generation, f"led by {leader}"]
        return [*said, len(answer.members), answer.skip_assignment]

    def sync(self, **assigned: bytes) -> list[Any]:
        """assigned: the shares, by member id."""
        kind = m.SyncGroupRequest.SyncGroupRequestAssignment
        request = m.SyncGroupRequest(
            group_id="st",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[kind(member_id=key, assignment=share) for key, share in assigned.items()],
        )
        answer = self.connection.call(request, 5)
        return [ErrorCode(answer.error_code).name, bytes(answer.assignment)]

    def beat(self) -> str:
        request = m.HeartbeatRequest(
            group_id="st",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return ErrorCode(self.connection.call(request, 4).error_code).name


class Side:
    """A broker, with the topic t and a coordinator that has loaded."""

    def __init__(self, broker: Broker | KafkaBroker) -> None:
        self.broker = broker
        product = "ours" if isinstance(broker, Broker) else "kafka"
        self._members: list[Member | Static] = []
        self.talker = Asker(product, broker.port, "")
        self.talker.make_topic("t")
        self.talker.call(m.FindCoordinatorRequest(key="g"), 3)  # makes the offsets topic
        self.commit("warm", -1)

    def commit(self, group: str, retention_ms: int) -> list[int]:
        kind = m.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(
            committed_offset=5, committed_metadata="", partition_index=0
        )
        topic = kind.OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            retention_time_ms=retention_ms,
            topics=[topic],
        )
        answer = self.talker.call(request, COMMIT_VERSION)
        return [row.error_code for each in answer.topics for row in each.partitions]

    def offset(self, group: str) -> int:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        answer = self.talker.call(m.OffsetFetchRequest(group_id=group, topics=[topic]), 5)
        committed: int = answer.topics[0].partitions[0].committed_offset
        return committed

    def groups(self) -> set[str]:
        answer = self.talker.call(m.ListGroupsRequest(), 4)
        return {row.group_id for row in answer.groups}

    def wait_gone(self, group: str) -> str:
        end_s = time.monotonic() + PATIENCE_S
        while group in self.groups():
            assert time.monotonic() < end_s, f"{group} is still there"
            time.sleep(0.05)
        return f"{group} is gone"

    def members(self, count: int) -> list[Member]:
        made = [Member(self.broker.port) for _ in range(count)]
        self._members += made
        return made

    def static(self, instance: str) -> Static:
        made = Static(self.broker.port, instance)
        self._members.append(made)
        return made

    def close(self) -> None:
        self.talker.close()
        for member in self._members:
            member.close()

    def restart(self, **changed: str) -> None:
        """Stopped in order and started with another configuration."""
        self.broker.config.update({key.replace("_", "."): value for key, value in changed.items()})
        if isinstance(self.broker, Broker):
            self.broker.restart()
        else:
            self.broker.stop()
            properties = self.broker.directory / "server.properties"
            lines = [f"{key}={value}\n" for key, value in self.broker.config.items()]
            properties.write_text("".join(lines))
            self.broker.start()
        self.talker.reconnect()


@pytest.fixture
def ours(rig: Rig) -> Iterator[Side]:
    side = Side(rig.broker(CONFIG))
    yield side
    side.close()


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Side]:
    with KafkaBroker(tmp_path / "kafka", **CONFIG) as kafka:
        side = Side(kafka)
        yield side
        side.close()


def session_timeouts(side: Side) -> list[Any]:
    (member,) = side.members(1)
    outcome = [member.join(session_ms, "s") for session_ms in (6_999, 120_001, 7_000, 120_000)]
    return [*outcome, member.leave("s"), side.wait_gone("s")]


def sizes(side: Side) -> list[Any]:
    """Two of three find room; then the limit shrinks to one."""
    first, second, third = side.members(3)
    began_s = time.monotonic()
    first.ask()
    second.ask()
    said = [first.joined(), second.joined(), time.monotonic() - began_s >= DELAY_MS / 1000]
    said += [third.join(), third.member_id]
    leader, follower = sorted((first, second), key=lambda member: not member.leads)
    said.append(leader.sync(leader.member_id, follower.member_id))
    said += [follower.sync(), third.join(), third.member_id, follower.join(), follower.sync()]
    side.restart(group_max_size="1")
    for member in (leader, follower, third):
        member.reconnect()
    said.append(side.commit("warm", -1))  # the coordinator has loaded
    said += [leader.beat(), follower.beat()]
    for member in (leader, follower):
        member.ask()
    said.append(sorted([leader.joined(), follower.joined()]))  # whichever was heard first stays
    stays = leader if leader.member_id else follower
    return [*said, stays.generation, stays.sync(stays.member_id), third.join()]


def retention(side: Side) -> list[Any]:
    said: list[Any] = [side.commit("short", 1), side.commit("long", 3_600_000)]
    said += [side.wait_gone("short"), side.offset("short"), side.offset("long")]
    return [*said, side.offset("warm"), sorted(side.groups() - {"g"})]


def static_members(side: Side) -> list[Any]:
    """A leader and a follower are replaced by new instances; nobody else is disturbed while what they say stays the same."""
    first, second = side.static("i1"), side.static("i2")
    for member in (first, second):
        member.ask(7)
    leads = {member: bool(member.joined(7).members) for member in (first, second)}
    leader, follower = sorted(leads, key=lambda member: not leads[member])
    shares = {leader.member_id: b"leader's", follower.member_id: b"follower's"}
    said: list[Any] = [leader.sync(**shares), follower.sync()]
    for version in (7, 9, 5):
        old, leader = leader, side.static(leader.instance)
        said += [leader.restart(version, old), leader.sync(), old.beat(), follower.beat()]
    old, follower = follower, side.static(follower.instance)
    said += [follower.restart(7, old), follower.sync(), old.sync(), leader.beat()]
    old, follower = follower, side.static(follower.instance)
    return [*said, follower.restart(7, old, b"other"), leader.beat()]


def test_groups_are_as_on_kafka(ours: Side, theirs: Side) -> None:
    with ThreadPoolExecutor(2) as both:
        for steps in (session_timeouts, static_members, retention, sizes):
            answered, expected = both.map(steps, (ours, theirs))
            assert answered == expected, steps.__name__
