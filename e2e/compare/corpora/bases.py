"""A valid request of each API, which the corpus of boundary values changes field by field."""

from typing import Any, Final

import msgspec
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpora.transactions.bases import TRANSACTION_BASES
from e2e.compare.stage import PATIENCE, Base, Stage
from e2e.harness.wire_connection import error_codes


def _offset_for_leader_epoch(stage: Stage) -> msgspec.Struct:
    kind = m.OffsetForLeaderEpochRequest
    row = kind.OffsetForLeaderPartition(leader_epoch=0)
    return kind(topics=[kind.OffsetForLeaderTopic(topic=stage.topic.name, partitions=[row])])


def _describe_topic_partitions(stage: Stage) -> msgspec.Struct:
    kind = m.DescribeTopicPartitionsRequest
    cursor = kind.Cursor(topic_name=stage.topic.name, partition_index=0)
    return kind(topics=[kind.TopicRequest(name=stage.topic.name)], cursor=cursor)


def _find_coordinator(stage: Stage) -> msgspec.Struct:
    group = stage.fresh("group")
    return m.FindCoordinatorRequest(key=group, coordinator_keys=[group])


def _join_group(stage: Stage) -> msgspec.Struct:
    group, member, _ = stage.member()
    return r.join(group, member, reason="why", **PATIENCE)


def _sync_group(stage: Stage) -> msgspec.Struct:
    group, member, generation = stage.member()
    return r.sync(group, member, generation, {member: b"b"})


def _leave_group(stage: Stage) -> msgspec.Struct:
    group, member, _ = stage.member()
    return r.leave(group, member)


def _offset_commit(stage: Stage) -> msgspec.Struct:
    group, member, generation = stage.member()
    return r.commit(
        group,
        stage.topic,
        3,
        member=member,
        generation=generation,
        retention_time_ms=86_400_000,  # of the versions that have it
    )


def _offset_fetch(stage: Stage) -> msgspec.Struct:
    group, member, generation = stage.member()
    stage.side.get(r.commit(group, stage.topic, 3, member=member, generation=generation))
    return r.committed(group, stage.topic)


def _list_groups(stage: Stage) -> msgspec.Struct:
    stage.member()
    return m.ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"])


def _delete_groups(stage: Stage) -> msgspec.Struct:
    group, member, _ = stage.member()
    stage.side.get(r.leave(group, member))
    return m.DeleteGroupsRequest(groups_names=[group])


def _offset_delete(stage: Stage) -> msgspec.Struct:
    group = stage.fresh("group")
    stage.side.get(r.commit(group, stage.topic, 3))
    kind = m.OffsetDeleteRequest
    row = kind.OffsetDeleteRequestPartition(partition_index=0)
    return kind(
        group_id=group,
        topics=[kind.OffsetDeleteRequestTopic(name=stage.topic.name, partitions=[row])],
    )


def _create_topics(stage: Stage) -> msgspec.Struct:
    stage.side.await_changes()
    config = m.CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="1000000")
    name = stage.fresh("made")
    stage.side.own_name(name.removeprefix(stage.side.prefix))
    return r.create(r.creatable(name, configs=[config]))


def _create_partitions(stage: Stage) -> msgspec.Struct:
    kind = m.CreatePartitionsRequest
    assignment = kind.CreatePartitionsAssignment(broker_ids=[1])
    topic = kind.CreatePartitionsTopic(
        name=stage.fresh_topic().name, count=2, assignments=[assignment]
    )
    return kind(topics=[topic], timeout_ms=r.TIMEOUT_MS)


def _delete_records(stage: Stage) -> msgspec.Struct:
    topic = stage.fresh_topic()
    r.fill(stage.side, topic, r.batch(3))
    return r.delete_records(topic.name, 1)


def _alter_configs(stage: Stage) -> msgspec.Struct:
    kind = m.AlterConfigsRequest
    config = kind.AlterableConfig(name="retention.ms", value="1000000")
    resource = kind.AlterConfigsResource(
        resource_type=2, resource_name=stage.fresh_topic().name, configs=[config]
    )
    return kind(resources=[resource])


def _describe_log_dirs(stage: Stage) -> msgspec.Struct:
    kind = m.DescribeLogDirsRequest
    return kind(topics=[kind.DescribableLogDirTopic(topic=stage.topic.name, partitions=[0])])


def _alter_replica_log_dirs(stage: Stage) -> msgspec.Struct:
    """To a directory that neither broker has: each has its own."""
    kind = m.AlterReplicaLogDirsRequest
    topic = kind.AlterReplicaLogDirTopic(name=stage.topic.name, partitions=[0])
    return kind(dirs=[kind.AlterReplicaLogDir(path="/nowhere", topics=[topic])])


def _elect_leaders(stage: Stage) -> msgspec.Struct:
    kind = m.ElectLeadersRequest
    row = kind.TopicPartitions(topic=stage.topic.name, partitions=[0])
    return kind(topic_partitions=[row], timeout_ms=r.TIMEOUT_MS)


def _alter_reassignments(stage: Stage) -> msgspec.Struct:
    kind = m.AlterPartitionReassignmentsRequest
    row = kind.ReassignablePartition(replicas=[1])
    topic = kind.ReassignableTopic(name=stage.topic.name, partitions=[row])
    return kind(topics=[topic], timeout_ms=r.TIMEOUT_MS)


def _list_reassignments(stage: Stage) -> msgspec.Struct:
    kind = m.ListPartitionReassignmentsRequest
    topic = kind.ListPartitionReassignmentsTopics(name=stage.topic.name, partition_indexes=[0])
    return kind(topics=[topic], timeout_ms=r.TIMEOUT_MS)


ACL: Final[dict[str, Any]] = {
    "resource_type": 2,
    "resource_name": "a",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER: Final[dict[str, Any]] = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 3,
    "permission_type": 3,
}


def _alter_client_quotas(stage: Stage) -> msgspec.Struct:
    kind = m.AlterClientQuotasRequest
    entity = kind.EntityData(entity_type="client-id", entity_name=stage.fresh("client"))
    operation = kind.OpData(key="producer_byte_rate", value=1e6)
    return kind(entries=[kind.EntryData(entity=[entity], ops=[operation])])


def _describe_client_quotas(stage: Stage) -> msgspec.Struct:
    request: Any = _alter_client_quotas(stage)
    answer = stage.side.get(request)
    assert not any(error_codes(answer)), answer
    stage.side.await_changes()
    name = request.entries[0].entity[0].entity_name
    row = m.DescribeClientQuotasRequest.ComponentData(
        entity_type="client-id", match_type=0, match=name
    )
    return m.DescribeClientQuotasRequest(components=[row])


def _update_features(_stage: Stage) -> msgspec.Struct:
    kind = m.UpdateFeaturesRequest
    row = kind.FeatureUpdateKey(feature="none.version", max_version_level=1)
    return kind(feature_updates=[row])


def _describe_scram_credentials(_stage: Stage) -> msgspec.Struct:
    kind = m.DescribeUserScramCredentialsRequest
    return kind(users=[kind.UserName(name="u")])


BASES: Final[dict[str, Base]] = {
    "Produce": lambda stage: r.produce(stage.topic, r.batch()),
    "Fetch": lambda stage: r.fetch(stage.topic),
    "ListOffsets": lambda stage: r.list_offsets(stage.topic, -1),
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "Metadata": lambda stage: r.metadata(stage.topic.name),
    "DescribeTopicPartitions": _describe_topic_partitions,
    "ApiVersions": lambda _: m.ApiVersionsRequest(
        client_software_name="a", client_software_version="1"
    ),
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join_group,
    "SyncGroup": _sync_group,
    "Heartbeat": lambda stage: r.heartbeat(*stage.member()),
    "LeaveGroup": _leave_group,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "DescribeGroups": lambda stage: m.DescribeGroupsRequest(groups=[stage.member()[0]]),
    "ListGroups": _list_groups,
    "DeleteGroups": _delete_groups,
    "OffsetDelete": _offset_delete,
    "CreateTopics": _create_topics,
    "DeleteTopics": lambda stage: r.delete(stage.fresh_topic().name),
    "CreatePartitions": _create_partitions,
    "DeleteRecords": _delete_records,
    "DescribeConfigs": lambda stage: r.describe_configs(
        stage.topic.name, "retention.ms", include_synonyms=True
    ),
    "IncrementalAlterConfigs": lambda stage: r.alter(
        stage.fresh_topic().name, ("retention.ms", 0, "1000000")
    ),
    "AlterConfigs": _alter_configs,
    "ListConfigResources": lambda _: m.ListConfigResourcesRequest(resource_types=[2]),
    "DescribeAcls": lambda _: m.DescribeAclsRequest(**FILTER),
    "CreateAcls": lambda _: m.CreateAclsRequest(creations=[m.CreateAclsRequest.AclCreation(**ACL)]),
    "DeleteAcls": lambda _: m.DeleteAclsRequest(
        filters=[m.DeleteAclsRequest.DeleteAclsFilter(**FILTER)]
    ),
    "DescribeCluster": lambda _: m.DescribeClusterRequest(),
    "DescribeLogDirs": _describe_log_dirs,
    "AlterReplicaLogDirs": _alter_replica_log_dirs,
    "ElectLeaders": _elect_leaders,
    "AlterPartitionReassignments": _alter_reassignments,
    "ListPartitionReassignments": _list_reassignments,
    "AlterClientQuotas": _alter_client_quotas,
    "DescribeClientQuotas": _describe_client_quotas,
    "UnregisterBroker": lambda _: m.UnregisterBrokerRequest(broker_id=4711),
    "UpdateFeatures": _update_features,
    "DescribeUserScramCredentials": _describe_scram_credentials,
    **TRANSACTION_BASES,
}
