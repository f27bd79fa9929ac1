"""As client_requests.py, for the APIs of administration; and the list of all talks."""

from collections.abc import Callable

from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare.talks import clients as client
from e2e.compare.talks import share_groups as share
from e2e.compare.talks.clients import TOPIC, Talk, World

NOBODY = 99
ANY, RESOURCE_TOPIC, READ, ALLOW, LITERAL = 1, 2, 3, 3, 3
CONFIG_TOPIC, SET, UPGRADE, SCRAM_SHA_256 = 2, 0, 1, 1
TIMEOUT_MS = 30_000


# --- configurations, quotas, features


def describe_configs(_world: World, _version: int) -> Talk:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=CONFIG_TOPIC, resource_name=TOPIC, configuration_keys=None
    )
    yield m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def alter_configs(_world: World, _version: int) -> Talk:
    config = m.AlterConfigsRequest.AlterableConfig(name="retention.ms", value="3600000")
    resource = m.AlterConfigsRequest.AlterConfigsResource(
        resource_type=CONFIG_TOPIC, resource_name="made-7", configs=[config]
    )
    yield m.AlterConfigsRequest(resources=[resource])


def incremental_alter_configs(_world: World, _version: int) -> Talk:
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="retention.ms", config_operation=SET, value="7200000"
    )
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=CONFIG_TOPIC, resource_name="made-7", configs=[config]
    )
    yield m.IncrementalAlterConfigsRequest(resources=[resource])


def list_config_resources(_world: World, _version: int) -> Talk:
    yield m.ListConfigResourcesRequest()


def alter_client_quotas(_world: World, _version: int) -> Talk:
    kind = m.AlterClientQuotasRequest
    entity = kind.EntityData(entity_type="client-id", entity_name="wire")
    operation = kind.OpData(key="producer_byte_rate", value=1048576.0)
    yield kind(entries=[kind.EntryData(entity=[entity], ops=[operation])])


def describe_client_quotas(_world: World, _version: int) -> Talk:
    component = m.DescribeClientQuotasRequest.ComponentData(
        entity_type="client-id", match_type=0, match="wire"
    )
    yield m.DescribeClientQuotasRequest(components=[component])


def update_features(_world: World, _version: int) -> Talk:
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(
        feature="group.version", max_version_level=1, upgrade_type=UPGRADE
    )
    yield m.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])


# --- users, tokens, permissions


def sasl_handshake(_world: World, _version: int) -> Talk:
    yield m.SaslHandshakeRequest(mechanism="PLAIN")


def sasl_authenticate(_world: World, _version: int) -> Talk:
    yield m.SaslAuthenticateRequest(auth_bytes=b"\0user\0secret")


def describe_acls(_world: World, _version: int) -> Talk:
    yield m.DescribeAclsRequest(
        resource_type_filter=ANY,
        pattern_type_filter=ANY,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def create_acls(_world: World, _version: int) -> Talk:
    creation = m.CreateAclsRequest.AclCreation(
        resource_type=RESOURCE_TOPIC,
        resource_name=TOPIC,
        resource_pattern_type=LITERAL,
        principal="User:wire",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    yield m.CreateAclsRequest(creations=[creation])


def delete_acls(_world: World, _version: int) -> Talk:
    one = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=RESOURCE_TOPIC,
        resource_name_filter=TOPIC,
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    yield m.DeleteAclsRequest(filters=[one])


def create_delegation_token(_world: World, _version: int) -> Talk:
    renewer = m.CreateDelegationTokenRequest.CreatableRenewers(
        principal_type="User", principal_name="wire"
    )
    yield m.CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)


def renew_delegation_token(_world: World, _version: int) -> Talk:
    yield m.RenewDelegationTokenRequest(hmac=b"mac", renew_period_ms=1000)


def expire_delegation_token(_world: World, _version: int) -> Talk:
    yield m.ExpireDelegationTokenRequest(hmac=b"mac", expiry_time_period_ms=1000)


def describe_delegation_token(_world: World, _version: int) -> Talk:
    yield m.DescribeDelegationTokenRequest(owners=None)


def alter_user_scram_credentials(_world: World, _version: int) -> Talk:
    one = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="wire",
        mechanism=SCRAM_SHA_256,
        iterations=4096,
        salt=b"salt" * 4,
        salted_password=b"p" * 32,
    )
    yield m.AlterUserScramCredentialsRequest(upsertions=[one])


def describe_user_scram_credentials(_world: World, _version: int) -> Talk:
    yield m.DescribeUserScramCredentialsRequest(users=None)


# --- the fleet


def describe_cluster(_world: World, _version: int) -> Talk:
    yield m.DescribeClusterRequest(include_cluster_authorized_operations=True)


def describe_log_dirs(_world: World, _version: int) -> Talk:
    yield m.DescribeLogDirsRequest(topics=None)


def alter_replica_log_dirs(world: World, _version: int) -> Talk:
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    one = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=world.log_dir, topics=[topic])
    yield m.AlterReplicaLogDirsRequest(dirs=[one])


def elect_leaders(_world: World, _version: int) -> Talk:
    one = m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
    yield m.ElectLeadersRequest(topic_partitions=[one], timeout_ms=TIMEOUT_MS)


def alter_partition_reassignments(_world: World, _version: int) -> Talk:
    kind = m.AlterPartitionReassignmentsRequest
    partition = kind.ReassignablePartition(replicas=[1])
    topic = kind.ReassignableTopic(name=TOPIC, partitions=[partition])
    yield kind(timeout_ms=TIMEOUT_MS, topics=[topic])


def list_partition_reassignments(_world: World, _version: int) -> Talk:
    yield m.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)


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


def remove_raft_voter(world: World, _version: int) -> Talk:
    yield m.RemoveRaftVoterRequest(
        cluster_id=world.cluster_id, voter_id=NOBODY, voter_directory_id=b"d" * 16
    )


def unregister_broker(_world: World, _version: int) -> Talk:
    yield m.UnregisterBrokerRequest(broker_id=NOBODY)


def unregister_controller(_world: World, _version: int) -> Talk:
    yield m.UnregisterControllerRequest(controller_id=NOBODY)


TALKS: dict[str, Callable[[World, int], Talk]] = {
    "ApiVersions": client.api_versions,
    "CreateTopics": client.create_topics,
    "Metadata": client.metadata,
    "Produce": client.produce,
    "Fetch": client.fetch,
    "ListOffsets": client.list_offsets,
    "OffsetForLeaderEpoch": client.offset_for_leader_epoch,
    "CreatePartitions": client.create_partitions,
    "DeleteRecords": client.delete_records,
    "DescribeTopicPartitions": client.describe_topic_partitions,
    "InitProducerId": client.init_producer_id,
    "DescribeProducers": client.describe_producers,
    "FindCoordinator": client.find_coordinator,
    "JoinGroup": client.join_group,
    "SyncGroup": client.sync_group,
    "Heartbeat": client.heartbeat,
    "OffsetCommit": client.offset_commit,
    "OffsetFetch": client.offset_fetch,
    "DescribeGroups": client.describe_groups,
    "ListGroups": client.list_groups,
    "LeaveGroup": client.leave_group,
    "OffsetDelete": client.offset_delete,
    "DeleteGroups": client.delete_groups,
    "ConsumerGroupHeartbeat": client.consumer_group_heartbeat,
    "ConsumerGroupDescribe": client.consumer_group_describe,
    "StreamsGroupHeartbeat": client.streams_group_heartbeat,
    "StreamsGroupTopologyDescriptionUpdate": client.streams_topology_description,
    "StreamsGroupDescribe": client.streams_group_describe,
    "AddPartitionsToTxn": client.add_partitions_to_txn,
    "AddOffsetsToTxn": client.add_offsets_to_txn,
    "TxnOffsetCommit": client.txn_offset_commit,
    "EndTxn": client.end_txn,
    "WriteTxnMarkers": client.write_txn_markers,
    "DescribeTransactions": client.describe_transactions,
    "ListTransactions": client.list_transactions,
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
    "AlterConfigs": alter_configs,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "ListConfigResources": list_config_resources,
    "AlterClientQuotas": alter_client_quotas,
    "DescribeClientQuotas": describe_client_quotas,
    "UpdateFeatures": update_features,
    "SaslHandshake": sasl_handshake,
    "SaslAuthenticate": sasl_authenticate,
    "DescribeAcls": describe_acls,
    "CreateAcls": create_acls,
    "DeleteAcls": delete_acls,
    "CreateDelegationToken": create_delegation_token,
    "RenewDelegationToken": renew_delegation_token,
    "ExpireDelegationToken": expire_delegation_token,
    "DescribeDelegationToken": describe_delegation_token,
    "AlterUserScramCredentials": alter_user_scram_credentials,
    "DescribeUserScramCredentials": describe_user_scram_credentials,
    "DescribeCluster": describe_cluster,
    "DescribeLogDirs": describe_log_dirs,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": alter_partition_reassignments,
    "ListPartitionReassignments": list_partition_reassignments,
    "DescribeQuorum": describe_quorum,
    "AddRaftVoter": add_raft_voter,
    "RemoveRaftVoter": remove_raft_voter,
    "UnregisterBroker": unregister_broker,
    "UnregisterController": unregister_controller,
    "DeleteTopics": client.delete_topics,
}
"""API -> its talk. The order matters: later talks describe, commit to or delete objects that
earlier ones created.
"""

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
