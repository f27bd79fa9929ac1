"""A valid request or a short talk of each API, per version.

A talk is a generator: it yields requests (another API's in its newest version, or as (request,
version)) and receives the responses. Requests have the fields of all versions at once (a topic's
name and its id). What one request of `corpora.bases` is enough for is that request.
"""

from collections.abc import Callable, Generator
from typing import Any

import msgspec
from logfleet.wire import messages as m
from logfleet.wire.apis import Api, api_of
from logfleet.wire.errors import ErrorCode

from e2e.compare import share_talks as share
from e2e.compare.corpora.bases import BASES
from e2e.compare.world import GROUP, NEW_MEMBER_EPOCH, TOPIC, Talk, World

TIMEOUT_MS, TRANSACTION_TIMEOUT_MS = 30_000, 60_000
NOBODY = 99
CONFIG_TOPIC, UPGRADE, SCRAM_SHA_256 = 2, 1, 1
STREAMS_MEMBER = "streams-member-000001"


def play(api: Api, version: int, world: World, ask: Callable[[msgspec.Struct, int], Any]) -> None:
    """Have each request of the API's talk asked, in its version."""
    talk, answer = TALKS[api.name](world, version), None
    while True:
        try:
            step = talk.send(answer)
        except StopIteration:
            return
        request, own = step if isinstance(step, tuple) else (step, None)
        other = api_of(type(request))
        if own is None:
            own = version if other is api else other.max_version
        answer = ask(request, own)


def _asks(made: Callable[[World], msgspec.Struct]) -> Callable[[World, int], Talk]:
    """The talk that is one request."""

    def talk(world: World, _version: int) -> Talk:
        yield made(world)

    return talk


# --- groups of all kinds


def find_coordinator(world: World, version: int) -> Talk:
    for kind in world.coordinators if version else (GROUP,):
        yield m.FindCoordinatorRequest(key="g", key_type=kind, coordinator_keys=["g"])


def consumer_group_heartbeat(_world: World, version: int) -> Talk:
    answer = yield m.ConsumerGroupHeartbeatRequest(
        group_id=f"consumer-{version}",
        member_id="" if version == 0 else "consumer-member-000001",
        member_epoch=NEW_MEMBER_EPOCH,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert answer.member_epoch > 0


def streams_group_heartbeat(_world: World, version: int) -> Talk:
    kind = m.StreamsGroupHeartbeatRequest
    topology = kind.Topology(
        epoch=0, subtopologies=[kind.Subtopology(subtopology_id="0", source_topics=[TOPIC])]
    )
    answer = yield kind(
        group_id=f"streams-{version}",
        member_id=STREAMS_MEMBER,
        member_epoch=NEW_MEMBER_EPOCH,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[kind.KeyValue(key="zone", value="a")],
        user_endpoint=kind.Endpoint(host="127.0.0.1", port=65_000),
    )
    assert answer.member_epoch > 0


def streams_topology_description(_world: World, _version: int) -> Talk:
    kind = m.StreamsGroupTopologyDescriptionUpdateRequest
    source = kind.TopologyDescriptionNode(
        name="source", node_type=1, source_topics=[TOPIC], successors=["sink"]
    )
    sink = kind.TopologyDescriptionNode(name="sink", node_type=3, sink_topic="out")
    part = kind.TopologyDescriptionSubtopology(subtopology_id="0", nodes=[source, sink])
    yield kind(
        group_id="streams-1",
        member_id=STREAMS_MEMBER,
        topology_epoch=0,
        topology_description=kind.TopologyDescription(subtopologies=[part]),
    )


# --- transactions


def transactional(name: str) -> Generator[m.InitProducerIdRequest, Any, tuple[str, int, int]]:
    answer = yield m.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    assert answer.error_code == 0
    return name, answer.producer_id, answer.producer_epoch


def partitions_of_transaction(name: str, producer_id: int, epoch: int) -> msgspec.Struct:
    kind = m.AddPartitionsToTxnRequest
    topics = [kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    batched = kind.AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, topics=topics
    )
    return kind(
        transactions=[batched],
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )


def add_partitions_to_txn(_world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"partitions-{version}")
    yield partitions_of_transaction(name, producer_id, epoch)


def add_offsets_to_txn(_world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"offsets-{version}")
    yield m.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="txn"
    )


def txn_offset_commit(world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"commit-{version}")
    begin = m.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="txn"
    )
    yield begin
    kind = m.TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    topic = kind.TxnOffsetCommitRequestTopic(
        name=TOPIC, topic_id=world.topic.id, partitions=[partition]
    )
    yield kind(
        transactional_id=name,
        group_id="txn",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[topic],
    )


def end_txn(_world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"end-{version}")
    yield partitions_of_transaction(name, producer_id, epoch), 3
    yield m.EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True
    )


def describe_producers(world: World, _version: int) -> Talk:
    topic = m.DescribeProducersRequest.TopicRequest(name=world.topic.name, partition_indexes=[0])
    yield m.DescribeProducersRequest(topics=[topic])


# --- administration


def describe_configs(_world: World, _version: int) -> Talk:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=CONFIG_TOPIC, resource_name=TOPIC, configuration_keys=None
    )
    yield m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def update_features(_world: World, _version: int) -> Talk:
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(
        feature="group.version", max_version_level=1, upgrade_type=UPGRADE
    )
    yield m.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])


def create_delegation_token(_world: World, _version: int) -> Talk:
    renewer = m.CreateDelegationTokenRequest.CreatableRenewers(
        principal_type="User", principal_name="wire"
    )
    yield m.CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)


def alter_user_scram_credentials(_world: World, _version: int) -> Talk:
    one = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="wire",
        mechanism=SCRAM_SHA_256,
        iterations=4096,
        salt=b"salt" * 4,
        salted_password=b"p" * 32,
    )
    yield m.AlterUserScramCredentialsRequest(upsertions=[one])


def alter_replica_log_dirs(world: World, _version: int) -> Talk:
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    one = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=world.side.log_dir, topics=[topic])
    yield m.AlterReplicaLogDirsRequest(dirs=[one])


def describe_quorum(_world: World, _version: int) -> Talk:
    topic = m.DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[m.DescribeQuorumRequest.PartitionData()]
    )
    yield m.DescribeQuorumRequest(topics=[topic])


def add_raft_voter(world: World, _version: int) -> Talk:
    listener = m.AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=9)
    yield m.AddRaftVoterRequest(
        cluster_id=world.cluster_id,
        timeout_ms=1000,
        voter_id=NOBODY,
        voter_directory_id=b"d" * 16,
        listeners=[listener],
    )


TALKS: dict[str, Callable[[World, int], Talk]] = {
    **{name: _asks(base) for name, base in BASES.items()},
    "DescribeProducers": describe_producers,
    "FindCoordinator": find_coordinator,
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "ConsumerGroupDescribe": _asks(
        lambda _: m.ConsumerGroupDescribeRequest(group_ids=["consumer-0"])
    ),
    "StreamsGroupHeartbeat": streams_group_heartbeat,
    "StreamsGroupTopologyDescriptionUpdate": streams_topology_description,
    "StreamsGroupDescribe": _asks(
        lambda _: m.StreamsGroupDescribeRequest(
            group_ids=["streams-1"], include_topology_description=True
        )
    ),
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "TxnOffsetCommit": txn_offset_commit,
    "EndTxn": end_txn,
    "WriteTxnMarkers": _asks(lambda _: m.WriteTxnMarkersRequest(markers=[])),
    "DescribeTransactions": _asks(
        lambda _: m.DescribeTransactionsRequest(transactional_ids=["end-5"])
    ),
    "ListTransactions": _asks(
        lambda _: m.ListTransactionsRequest(transactional_id_pattern="end-.*")
    ),
    "InitializeShareGroupState": share.initialize_share_group_state,
    "ReadShareGroupState": share.read_share_group_state,
    "WriteShareGroupState": share.write_share_group_state,
    "ReadShareGroupStateSummary": share.read_share_group_state_summary,
    "DeleteShareGroupState": share.delete_share_group_state,
    "ShareGroupHeartbeat": share.share_group_heartbeat,
    "ShareGroupDescribe": share.share_group_describe,
    "ShareFetch": share.share_fetch,
    "ShareAcknowledge": share.share_acknowledge,
    "DescribeShareGroupOffsets": share.describe_share_group_offsets,
    "AlterShareGroupOffsets": share.alter_share_group_offsets,
    "DeleteShareGroupOffsets": share.delete_share_group_offsets,
    "DescribeConfigs": describe_configs,
    "UpdateFeatures": update_features,
    "SaslHandshake": _asks(lambda _: m.SaslHandshakeRequest(mechanism="PLAIN")),
    "SaslAuthenticate": _asks(lambda _: m.SaslAuthenticateRequest(auth_bytes=b"\0user\0secret")),
    "CreateDelegationToken": create_delegation_token,
    "RenewDelegationToken": _asks(
        lambda _: m.RenewDelegationTokenRequest(hmac=b"mac", renew_period_ms=1000)
    ),
    "ExpireDelegationToken": _asks(
        lambda _: m.ExpireDelegationTokenRequest(hmac=b"mac", expiry_time_period_ms=1000)
    ),
    "DescribeDelegationToken": _asks(lambda _: m.DescribeDelegationTokenRequest(owners=None)),
    "AlterUserScramCredentials": alter_user_scram_credentials,
    "DescribeUserScramCredentials": _asks(
        lambda _: m.DescribeUserScramCredentialsRequest(users=None)
    ),
    "DescribeLogDirs": _asks(lambda _: m.DescribeLogDirsRequest(topics=None)),
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "DescribeQuorum": describe_quorum,
    "AddRaftVoter": add_raft_voter,
    "RemoveRaftVoter": _asks(
        lambda world: m.RemoveRaftVoterRequest(
            cluster_id=world.cluster_id, voter_id=NOBODY, voter_directory_id=b"d" * 16
        )
    ),
    "UnregisterController": _asks(lambda _: m.UnregisterControllerRequest(controller_id=NOBODY)),
}
"""API -> its talk. The order matters: later talks describe what earlier ones created."""

NO_TOKENS = {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
REFUSALS: dict[str, set[ErrorCode]] = {
    "JoinGroup": {ErrorCode.MEMBER_ID_REQUIRED},  # the first half of joining since version 4
    "StreamsGroupTopologyDescriptionUpdate": {ErrorCode.UNSUPPORTED_VERSION},  # needs a plugin
    "SaslHandshake": {ErrorCode.ILLEGAL_SASL_STATE},
    "SaslAuthenticate": {ErrorCode.ILLEGAL_SASL_STATE},
    "DescribeAcls": {ErrorCode.SECURITY_DISABLED},
    "CreateAcls": {ErrorCode.SECURITY_DISABLED},
    "DeleteAcls": {ErrorCode.SECURITY_DISABLED},
    "CreateDelegationToken": NO_TOKENS,
    "RenewDelegationToken": NO_TOKENS,
    "ExpireDelegationToken": NO_TOKENS,
    "DescribeDelegationToken": NO_TOKENS,
    "ElectLeaders": {ErrorCode.ELECTION_NOT_NEEDED},
    "AddRaftVoter": {ErrorCode.UNSUPPORTED_VERSION},  # kraft.version 0: the voters are static
    "RemoveRaftVoter": {ErrorCode.UNSUPPORTED_VERSION},
    "UnregisterBroker": {ErrorCode.BROKER_ID_NOT_REGISTERED},
    "UnregisterController": {ErrorCode.CONTROLLER_ID_NOT_REGISTERED},
}
"""API -> error codes, besides NONE, with which a new broker of one node without security answers a
valid request.
"""
