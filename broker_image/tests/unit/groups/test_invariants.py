"""I14 and I15 under anything clients, time, slow followers and failovers do.

Clients behave well or not: they send what they may send and what is long out of date. Partitions p0 to p3 of topic t
are what the leaders share out. A failover loses what was not committed, as it may.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.config import GroupConfig
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from broker_image.tests.scenario.group_host import GroupHost

GROUP = "g"
PARTITIONS = ["p0", "p1", "p2", "p3"]
CLIENTS = st.integers(0, 3)
STATIC_CLIENT = 0
PARTITION = st.integers(0, 1)


class Groups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.host = GroupHost(GroupConfig(initial_rebalance_delay_ms=100))
        self.member_ids = [""] * 4
        self.generations = [-1] * 4
        self.led: list[list[str]] = [[]] * 4
        self.requests = 0
        self.sent: dict[object, dict[str, Any]] = {}
        self.seen = 0
        self.owners: dict[int, dict[str, str]] = {}  # by generation: partition -> member
        self.commits = 0
        self.acknowledged = {0: -1, 1: -1}

    def waiter(self, kind, **facts):
        self.requests += 1
        waiter = (kind, self.requests)
        self.sent[waiter] = facts
        return waiter

    def take_answers(self):
        """Look at the answers that came and remember what clients remember."""
        for waiter, response in self.host.replies[self.seen :]:
            facts = self.sent.pop(waiter)
            match response:
                case JoinGroupResponse():
                    self.joined(facts["client"], response)
                case SyncGroupResponse(error_code=0):
                    self.assigned(facts, response)
                case OffsetCommitResponse():
                    (committed,) = response.topics[0].partitions
                    if committed.error_code == ErrorCode.NONE:
                        self.saw(committed.partition_index, facts["number"])
                case OffsetFetchResponse.OffsetFetchResponseGroup(error_code=0):
                    for fetched in response.topics[0].partitions:
                        floor = facts["acknowledged"][fetched.partition_index]
                        assert fetched.committed_offset >= floor, "I15: a commit is gone"
                        # What somebody has seen is as good as acknowledged.
                        self.saw(fetched.partition_index, fetched.committed_offset)
        self.seen = len(self.host.replies)

    def saw(self, partition, number):
        self.acknowledged[partition] = max(self.acknowledged[partition], number)

    def joined(self, client, response):
        if response.error_code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.member_ids[client] = ""
        if response.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_ids[client] = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.generations[client] = response.generation_id
            self.led[client] = [member.member_id for member in response.members]

    def assigned(self, facts, response):
        # A static member stays one owner under a new id: its incarnation before is fenced.
        member = "static" if facts["client"] == STATIC_CLIENT else facts["member"]
        owners = self.owners.setdefault(facts["generation"], {})
        for partition in filter(None, bytes(response.assignment).decode().split(",")):
            owner = owners.setdefault(partition, member)
            assert owner == member, "I14: two owners in one generation"

    @rule(
        client=CLIENTS,
        version=st.sampled_from([3, 3, 9]),
        anew=st.sampled_from([False, False, False, True]),
    )
    def join(self, client, version, anew):
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=9_000,
            member_id="" if anew else self.member_ids[client],
            group_instance_id="static" if client == STATIC_CLIENT else None,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        waiter = self.waiter("join", client=client)
        fresh = f"{client}-{self.requests}"
        turn = self.host.turn()
        caller = Caller("c", "/h", version)
        self.host.coordinator.of(CLASSIC).join(
            turn, Join(request, protocols_of(request), caller, waiter, fresh)
        )
        self.host.run(turn)
        self.take_answers()

    @rule(client=CLIENTS, rotate=st.integers(0, 3))
    def sync(self, client, rotate):
        """A leader shares out the partitions among those it was told of, beginning anywhere."""
        members = self.led[client]
        shares: dict[str, list[str]] = {member: [] for member in members}
        for number, partition in enumerate(PARTITIONS):
            if members:
                shares[members[(number + rotate) % len(members)]].append(partition)
        generation, member = self.generations[client], self.member_ids[client]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=name, assignment=",".join(share).encode()
                )
                for name, share in shares.items()
            ],
        )
        turn = self.host.turn()
        waiter = self.waiter("sync", client=client, generation=generation, member=member)
        self.host.coordinator.of(CLASSIC).sync(turn, request, waiter)
        self.host.run(turn)
        self.take_answers()

    @rule(client=CLIENTS)
    def beat(self, client):
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generations[client],
            member_id=self.member_ids[client],
        )
        turn = self.host.turn()
        self.host.coordinator.of(CLASSIC).heartbeat(turn, request)
        self.host.run(turn)

    @rule(client=CLIENTS)
    def leave(self, client):
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_ids[client])
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        turn = self.host.turn()
        self.host.coordinator.of(CLASSIC).leave(turn, request, self.waiter("leave"))
        self.host.run(turn)
        self.take_answers()

    @rule(client=CLIENTS, partition=PARTITION, back=st.integers(0, 1))
    def commit(self, client, partition, back):
        """With the generation the client knows, or the one before; committed offsets count the commits."""
        self.commits += 1
        generation = max(self.generations[client] - back, -1)
        member = self.member_ids[client] if generation >= 0 else ""
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=self.commits
                        )
                    ],
                )
            ],
        )
        before = len(self.host.log)
        current = self.host.classic(GROUP)
        old = current is not None and 0 <= generation < current.generation
        turn = self.host.turn()
        waiter = self.waiter("commit", number=self.commits)
        self.host.coordinator.commit(turn, request, 9, waiter)
        self.host.run(turn)
        if old:
            assert len(self.host.log) == before, "I14: a commit of an old generation was taken"
        self.take_answers()

    @rule()
    def fetch(self):
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
        request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        turn = self.host.turn()
        waiter = self.waiter("fetch", acknowledged=dict(self.acknowledged))
        self.host.coordinator.fetch(turn, request, waiter)
        self.host.run(turn)
        self.take_answers()

    @rule(ms=st.sampled_from([1, 100, 3_000, 6_000, 9_000]))
    def wait(self, ms):
        self.host.wait(ms)
        self.take_answers()

    @rule(
        clients=st.sets(CLIENTS, min_size=1),
        syncing=st.sampled_from([0, 4, 4]),
        ms=st.sampled_from([200, 200, 5_900]),
    )
    def rebalance(self, clients, syncing, ms):
        """What mostly happens, in one step: all join, time passes, some or all ask for their assignment."""
        for client in sorted(clients):
            self.join(client=client, version=3, anew=False)
        self.wait(ms=ms)
        for client in sorted(clients)[:syncing]:
            self.sync(client=client, rotate=0)

    @rule()
    def followers_lag(self):
        self.host.holds_commits = True

    @precondition(lambda self: self.host.holds_commits)
    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]))
    def followers_catch_up(self, error):
        self.host.holds_commits = False
        self.host.commit(error)
        self.take_answers()

    @rule(orderly=st.booleans())
    def failover(self, orderly):
        if orderly:
            self.host.unload()
        self.host.load()
        self.take_answers()

    @rule(error=st.sampled_from([ErrorCode.NONE] * 3 + [ErrorCode.NOT_ENOUGH_REPLICAS]))
    def storage(self, error):
        self.host.append_error = error

    @invariant()
    def stored_generations_never_decrease(self):
        generations = [
            record.value.generation
            for record in self.host.records()
            if isinstance(record, GroupMetadataRecord) and record.value is not None
        ]
        assert generations == sorted(generations), "I14"

    @invariant()
    def the_group_is_consistent(self):
        group = self.host.classic(GROUP)
        if group is None:
            return
        parked = [member for member in group.members.values() if member.join_waiter is not None]
        assert group.awaiting_join == len(parked)
        assert group.leader_id is None or group.leader_id in group.members
        assert group.pending_sync <= group.members.keys()
        assert set(group.static_members.values()) <= group.members.keys()
        for member_id, member in group.members.items():
            assert member.member_id == member_id
            assert member.session.at_ms is not None or member.keeps_session_by_waiting()

    @invariant()
    def stored_state_is_what_the_log_says(self):
        fresh = GroupHost(self.host.config)
        fresh.log = list(self.host.log)
        fresh.committed_end = len(fresh.log)
        fresh.load()
        mine, other = self.host.coordinator._table, fresh.coordinator._table
        assert mine.offsets == other.offsets
        stored, read = (host.coordinator.of(CLASSIC)._table.stored for host in (self.host, fresh))
        assert {key: each.value for key, each in stored.items()} == {
            key: each.value for key, each in read.items()
        }


Groups.TestCase.settings = settings(max_examples=200, stateful_step_count=30)
TestGroups = Groups.TestCase
