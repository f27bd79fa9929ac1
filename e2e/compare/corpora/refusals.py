"""The administrative APIs in every version, above all what they refuse. Texts are compared word by word."""

import copy
from typing import Any, Final

import msgspec
from logfleet.wire import messages as m
from logfleet.wire.apis import api_of
from logfleet.wire.consumer_protocol import write_subscription

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus, versions_of
from e2e.compare.side import MadeTopic, Side
from e2e.harness.wire_connection import error_codes

CORPUS: Final = Corpus("refusals", exact_texts=True)
RECORDS: Final = 10
TOPIC, BROKER, GROUP = 2, 4, 32
SET_FOR_TOPIC: Final = 1
NAMES_UP_TO: Final = 9
"""The last version of OffsetFetch that names topics, not ids."""
NOWHERE: Final = "nowhere"


def ask(side: Side, *requests: msgspec.Struct) -> None:
    """Each in every version."""
    for request in requests:
        for version in versions_of(api_of(type(request)).name):
            side.ask(copy.deepcopy(request), version)


def filled(side: Side, name: str, partitions: int = 1, **config: str) -> MadeTopic:
    """A topic with RECORDS in partition 0."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    topic = side.topic(name, partitions, named)
    r.fill(side, topic, r.batch(RECORDS))
    return topic


# --- records


def deletion(*rows: tuple[str, int, int]) -> m.DeleteRecordsRequest:
    """rows: topic, partition, offset."""
    topics = [r.delete_records(name, offset, index=index).topics[0] for name, index, offset in rows]
    return m.DeleteRecordsRequest(topics=topics, timeout_ms=r.TIMEOUT_MS)


@CORPUS.case
def deleting_records(side: Side) -> None:
    plain, both = (
        filled(side, "plain").name,
        filled(side, "both", cleanup_policy="compact,delete").name,
    )
    compacted = filled(side, "compacted", cleanup_policy="compact").name
    ask(
        side,
        deletion((plain, 0, 3)),
        deletion((plain, 0, 1)),
        deletion((plain, 0, RECORDS + 1)),
        deletion((plain, 0, -2)),
        deletion((plain, 0, 4), (plain, 0, 5), (both, 0, 1)),
        deletion((plain, 0, -1)),
        deletion((plain, 1, 0)),
        deletion((compacted, 0, 1)),
        deletion((NOWHERE, 0, 1)),
        deletion(("__consumer_offsets", 0, 0)),
        deletion(("__consumer_offsets", 9, 0)),
        deletion(("", 0, 0)),
        deletion(),
        m.DeleteRecordsRequest(topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name=plain)]),
    )


# --- configurations


def replacement(
    kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> m.AlterConfigsRequest:
    request = m.AlterConfigsRequest
    rows = [request.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return request(resources=[resource], validate_only=validate_only)


def note_own_configs(side: Side, name: str) -> None:
    """What is set for the topic itself."""
    side.await_changes()
    (result,) = side.get(r.describe_configs(name), 4).results
    rows = {row.name: row.value for row in result.configs if row.config_source == SET_FOR_TOPIC}
    side.note("own configs", rows)


@CORPUS.case
def replacing_configs(side: Side) -> None:
    """A resource that is named twice is left out: Kafka 4.4.0 does not answer that request at all."""
    name = filled(side, "three", 3).name
    ask(side, replacement(TOPIC, name, ("retention.ms", "1000000"), ("segment.ms", "5000")))
    ask(side, replacement(TOPIC, name, ("segment.ms", "6000")))
    note_own_configs(side, name)
    ask(
        side,
        replacement(TOPIC, name, validate_only=True),
        replacement(TOPIC, name, ("retention.ms", "x")),
        replacement(TOPIC, name, ("nope", "x")),
        replacement(TOPIC, name, ("retention.ms", None)),
        replacement(TOPIC, name, ("retention.ms", "1"), ("retention.ms", "2")),
        replacement(TOPIC, NOWHERE, ("retention.ms", "1")),
        replacement(TOPIC, ""),
    )
    note_own_configs(side, name)
    ask(side, replacement(TOPIC, name))
    note_own_configs(side, name)
    ask(
        side,
        replacement(BROKER, "1", ("log.retention.ms", "100000000")),
        replacement(BROKER, "x"),
        replacement(BROKER, "1", ("broker.id", "3")),
        replacement(BROKER, "1"),
        replacement(3, "x"),
        replacement(99, "x"),
        m.AlterConfigsRequest(),
    )
    side.await_changes()


@CORPUS.case
def listing_resources(side: Side) -> None:
    group = f"{side.prefix}group"
    ask(side, r.alter(group, ("consumer.session.timeout.ms", 0, "50000"), kind=GROUP))
    side.await_changes()
    asked: tuple[list[int], ...] = ([], [2], [4], [8], [16], [32], [1], [99], [2, 4, 32])
    ask(side, *(m.ListConfigResourcesRequest(resource_types=types) for types in asked))


# --- permissions, of which there are none


@CORPUS.case
def acls_without_an_authorizer(side: Side) -> None:
    """A zero, UNKNOWN, closes the connection; a number that nobody knows does not."""
    every: dict[str, Any] = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
    }
    filters = [every, *({**every, name: value} for name in list(every)[:4] for value in (0, 99))]
    acl: dict[str, Any] = {
        "resource_type": 2,
        "resource_pattern_type": 3,
        "operation": 3,
        "permission_type": 3,
        "resource_name": "plain",
        "principal": "User:a",
        "host": "*",
    }
    acls = [acl, *({**acl, name: value} for name in list(acl)[:4] for value in (0, 99))]
    creations, deletions = m.CreateAclsRequest, m.DeleteAclsRequest
    for each in filters:
        row = deletions.DeleteAclsFilter(**each)
        ask(side, m.DescribeAclsRequest(**each), deletions(filters=[row, row]))
    ask(side, *(creations(creations=[creations.AclCreation(**each)] * 2) for each in acls))
    ask(side, creations(), deletions())


@CORPUS.case
def scram_credentials_that_nobody_has(side: Side) -> None:
    kind = m.DescribeUserScramCredentialsRequest
    for names in ([], ["a"], ["a", "a"], [""]):
        ask(side, kind(users=[kind.UserName(name=name) for name in names]))
    ask(side, kind(users=None))


# --- leaders and replicas


def election(kind: int, topics: dict[str, list[int]] | None) -> m.ElectLeadersRequest:
    request = m.ElectLeadersRequest
    rows = [
        request.TopicPartitions(topic=name, partitions=ids) for name, ids in (topics or {}).items()
    ]
    return request(
        election_type=kind,
        topic_partitions=None if topics is None else rows,
        timeout_ms=r.TIMEOUT_MS,
    )


@CORPUS.case
def elections_that_nobody_needs(side: Side) -> None:
    plain, three = filled(side, "plain").name, filled(side, "three", 3).name
    ask(
        side,
        election(0, {plain: [0, 9], three: [2, 1, 1], NOWHERE: [0]}),
        election(1, {plain: [0]}),
        election(2, {plain: [0]}),
        election(0, None),
        election(1, None),
        election(0, {}),
    )


def reassignment(
    name: str, index: int, replicas: list[int] | None, *, may_change_factor: bool = True
) -> m.AlterPartitionReassignmentsRequest:
    kind = m.AlterPartitionReassignmentsRequest
    partition = kind.ReassignablePartition(partition_index=index, replicas=replicas)
    return kind(
        timeout_ms=r.TIMEOUT_MS,
        topics=[kind.ReassignableTopic(name=name, partitions=[partition])],
        allow_replication_factor_change=may_change_factor,
    )


@CORPUS.case
def moves_to_where_replicas_are_or_cannot_be(side: Side) -> None:
    plain = filled(side, "plain").name
    for replicas in ([1], [], [1, 1], [2], [1, 2], [-1], None):
        for may_change_factor in (True, False):
            ask(side, reassignment(plain, 0, replicas, may_change_factor=may_change_factor))
        ask(side, reassignment(plain, 9, replicas), reassignment(NOWHERE, 0, replicas))
    ask(side, m.AlterPartitionReassignmentsRequest(timeout_ms=1000))
    kind = m.ListPartitionReassignmentsRequest
    for name, index in ((plain, 0), (plain, 9), (NOWHERE, 0)):
        topic = kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=[index])
        ask(side, kind(timeout_ms=1000, topics=[topic]))
    ask(side, kind(timeout_ms=1000, topics=None), kind(timeout_ms=1000, topics=[]))


# --- offsets of groups


def offset_deletion(group: str, *rows: tuple[str, int]) -> m.OffsetDeleteRequest:
    """rows: topic, partition."""
    kind = m.OffsetDeleteRequest
    topics = [
        kind.OffsetDeleteRequestTopic(
            name=name, partitions=[kind.OffsetDeleteRequestPartition(partition_index=index)]
        )
        for name, index in rows
    ]
    return kind(group_id=group, topics=topics)


def committed(side: Side, group: str) -> tuple[str, str]:
    """A topic of one partition and one of three, of all of which the group has committed an offset."""
    plain, three = filled(side, "plain"), filled(side, "three", 3)
    for topic, index in ((plain, 0), (three, 0), (three, 1), (three, 2)):
        answer = side.get(r.commit(group, topic, 3, index=index), NAMES_UP_TO)
        assert not any(error_codes(answer)), answer
    return plain.name, three.name


@CORPUS.case
def deleting_offsets_without_members(side: Side) -> None:
    group, none = f"{side.prefix}group", f"{side.prefix}none"
    plain, three = committed(side, group)
    ask(
        side,
        offset_deletion(group, (three, 0), (three, 9), (NOWHERE, 0)),
        offset_deletion(group, (three, 0), (three, 0)),
        offset_deletion(group, (three, 1), (three, 2)),
        offset_deletion(group),
        offset_deletion(none, (plain, 0)),
        offset_deletion(none, (NOWHERE, 0)),
        offset_deletion("", (plain, 0)),
    )
    side.ask(r.committed(group, None), NAMES_UP_TO)


def _offsets_that_members_need(side: Side, kind: str, *, is_readable: bool) -> None:
    """While the group rebalances, and when it is stable."""
    group = f"{side.prefix}group"
    plain, three = committed(side, group)
    request = r.join(group, protocol_type=kind)
    request.protocols[0].metadata = write_subscription([plain]) if is_readable else b"unreadable"
    request.member_id = side.get(request, 5).member_id
    joined = side.get(request, 5)
    assert joined.error_code == 0, joined
    asked = [offset_deletion(group, (name, 0)) for name in (plain, three, NOWHERE)]
    ask(side, *asked)
    member, generation = joined.member_id, joined.generation_id
    assert side.get(r.sync(group, member, generation, {member: b""}), 3).error_code == 0
    ask(side, *asked)
    side.ask(r.committed(group, None), NAMES_UP_TO)


@CORPUS.case
def offsets_that_consumers_need(side: Side) -> None:
    _offsets_that_members_need(side, "consumer", is_readable=True)


@CORPUS.case
def offsets_of_consumers_with_odd_subscriptions(side: Side) -> None:
    _offsets_that_members_need(side, "consumer", is_readable=False)


@CORPUS.case
def offsets_of_members_that_are_no_consumers(side: Side) -> None:
    _offsets_that_members_need(side, "connect", is_readable=False)
