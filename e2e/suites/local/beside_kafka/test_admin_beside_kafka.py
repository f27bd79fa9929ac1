"""The administrative APIs beside a running Apache Kafka 4.4.0, above all what they refuse: the same requests, the same answers."""

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.consumer_protocol import write_subscription
from logfleet.wire.errors import ErrorCode

from e2e.compare.beside_kafka import BesideKafka
from e2e.compare.talks.clients import fit
from e2e.compare.talks.talker import Talker, comparable, error_codes
from e2e.harness.command_line import until
from e2e.harness.wire_connection import Disconnected

pytestmark = [pytest.mark.xdist_group("admin-beside-kafka"), pytest.mark.timeout(900)]
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
NOW = time.time_ns() // 1_000_000
RECORDS = 10
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (1, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "both": (1, {"cleanup.policy": "compact,delete"}),
    "three": (3, {}),
}
"""Partitions and configuration; partition 0 of each holds RECORDS."""
TOPIC, BROKER, GROUP, SET_FOR_TOPIC = 2, 4, 32, 1
NAMES_UP_TO = 9
"""The last version of OffsetFetch that names topics, not ids."""
CLOSED = "the connection was closed"


class Pair:
    """The same asked of both."""

    def __init__(self, kafka: Talker, ours: Talker) -> None:
        self.kafka = kafka
        self.ours = ours

    def ask(self, request: msgspec.Struct, version: int) -> tuple[Any, Any]:
        """What Kafka answers, and what we do, without what is the broker's own; CLOSED where it hangs up."""
        return _ask(self.kafka, request, version), _ask(self.ours, request, version)

    def same(self, *requests: msgspec.Struct, since: int = 0) -> None:
        """Both answer alike, in every version from `since` on."""
        for request in requests:
            api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
            for version in range(max(since, api.served_min), api.max_version + 1):
                theirs, own = self.ask(request, version)
                assert own == theirs, (request, version)


def _ask(talker: Talker, request: msgspec.Struct, version: int) -> Any:
    try:
        return comparable(talker.call(fit(copy.deepcopy(request), version), version))
    except Disconnected:
        talker.reconnect()
        return CLOSED


def fill(talker: Talker) -> None:
    """Make TOPICS, and the topic of the groups' coordinators."""
    for name, (partitions, configs) in TOPICS.items():
        send(talker, talker.make_topic(name, partitions, configs), [0])
    talker.call(m.FindCoordinatorRequest(coordinator_keys=["group"]), 4)


def send(talker: Talker, topic_id: bytes, indexes: list[int]) -> None:
    """RECORDS records to each of the partitions."""
    kind = m.ProduceRequest
    batch = bytes(build_batch([Record(b"k%d" % n, b"v", NOW) for n in range(RECORDS)]))
    data = [kind.PartitionProduceData(index=index, records=batch) for index in indexes]
    topic = kind.TopicProduceData(topic_id=topic_id, partition_data=data)
    answer = talker.call(kind(acks=-1, timeout_ms=30_000, topic_data=[topic]), 13)
    assert not any(error_codes(answer)), answer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("both")
    with BesideKafka(directory, CONFIG, log_dirs=2) as both, both.talkers() as talkers:
        for talker in talkers:
            fill(talker)
        yield Pair(*talkers)


# --- records


def deletion(*rows: tuple[str, int, int]) -> m.DeleteRecordsRequest:
    """rows: topic, partition, offset."""
    kind = m.DeleteRecordsRequest
    return kind(
        topics=[
            kind.DeleteRecordsTopic(
                name=name,
                partitions=[kind.DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
            for name, index, offset in rows
        ],
        timeout_ms=30_000,
    )


def test_records_are_deleted_and_refused_as_kafka_does(pair: Pair) -> None:
    pair.same(
        deletion(("plain", 0, 3)),
        deletion(("plain", 0, 1)),
        deletion(("plain", 0, RECORDS + 1)),
        deletion(("plain", 0, -2)),
        deletion(("plain", 0, 4), ("plain", 0, 5), ("both", 0, 1)),
        deletion(("plain", 0, -1)),
        deletion(("plain", 1, 0)),
        deletion(("compacted", 0, 1)),
        deletion(("nowhere", 0, 1)),
        deletion(("__consumer_offsets", 0, 0)),
        deletion(("__consumer_offsets", 9, 0)),
        deletion(("", 0, 0)),
        deletion(),
        m.DeleteRecordsRequest(topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name="plain")]),
    )


def test_what_was_deleted_stays_so_after_sigkill(rig) -> None:
    broker = rig.broker()
    talker = Talker(broker.port, broker.data)
    fill(talker)
    talker.call(deletion(("plain", 0, 4), ("both", 0, -1)), 2)
    talker.close()
    broker.kill()
    broker.start()
    asked = [
        m.ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[m.ListOffsetsRequest.ListOffsetsPartition(timestamp=-2)],
        )
        for name in ("plain", "both", "three")
    ]
    talker = Talker(broker.port, broker.data)
    answer = talker.call(m.ListOffsetsRequest(topics=asked), 7)
    talker.close()
    assert [topic.partitions[0].offset for topic in answer.topics] == [4, RECORDS, 0]


def test_segments_that_hold_nothing_else_go(rig) -> None:
    """With the next look at retention; what is left of the segment that was cut is not shown."""
    broker = rig.broker({"log.retention.check.interval.ms": "50"})
    talker = Talker(broker.port, broker.data)
    topic_id = talker.make_topic("t", 1, {"segment.ms": "1", "retention.ms": "-1"})
    for number in range(4):  # a later record of a later time begins a segment
        batch = bytes(build_batch([Record(b"k", b"v", NOW + 10 * number) for _ in range(5)]))
        data = m.ProduceRequest.PartitionProduceData(records=batch)
        topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
        talker.call(m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 13)
    folder = broker.data / "t-0"
    assert len(list(folder.glob("*.log"))) == 4
    talker.call(deletion(("t", 0, 12)), 2)
    give_up_s = time.monotonic() + 60
    while len(list(folder.glob("*.log"))) > 2:
        assert time.monotonic() < give_up_s
        time.sleep(0.01)
    talker.close()
    assert sorted(file.name[18:20] for file in folder.glob("*.log")) == ["10", "15"]


# --- configurations


def replacement(
    kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> m.AlterConfigsRequest:
    rows = [m.AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = m.AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=rows
    )
    return m.AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def own_configs(talker: Talker, name: str) -> dict[str, str]:
    """What is set for the topic itself."""
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=None
    )
    (result,) = talker.call(m.DescribeConfigsRequest(resources=[resource]), 4).results
    return {row.name: row.value for row in result.configs if row.config_source == SET_FOR_TOPIC}


def same_own_configs(pair: Pair, name: str) -> dict[str, str]:
    """What both show as set for the topic: ours at once, Kafka some time after it has answered the change."""
    own = own_configs(pair.ours, name)
    until(lambda: own_configs(pair.kafka, name) == own)
    return own


def test_configs_are_replaced_and_refused_as_kafka_does(pair: Pair) -> None:
    """A resource that is named twice is left out: Kafka 4.4.0 does not answer that request at all."""
    pair.same(replacement(TOPIC, "three", ("retention.ms", "1000000"), ("segment.ms", "5000")))
    pair.same(replacement(TOPIC, "three", ("segment.ms", "6000")))
    assert same_own_configs(pair, "three") == {"segment.ms": "6000"}
    pair.same(
        replacement(TOPIC, "three", validate_only=True),
        replacement(TOPIC, "three", ("retention.ms", "x")),
        replacement(TOPIC, "three", ("nope", "x")),
        replacement(TOPIC, "three", ("retention.ms", None)),
        replacement(TOPIC, "three", ("retention.ms", "1"), ("retention.ms", "2")),
        replacement(TOPIC, "nowhere", ("retention.ms", "1")),
        replacement(TOPIC, ""),
    )
    assert same_own_configs(pair, "three") != {}
    pair.same(replacement(TOPIC, "three"))
    assert same_own_configs(pair, "three") == {}
    pair.same(
        replacement(BROKER, "1", ("log.retention.ms", "100000000")),
        replacement(BROKER, "x"),
        replacement(BROKER, "1", ("broker.id", "3")),
        replacement(BROKER, "1"),
        replacement(3, "x"),
        replacement(99, "x"),
        m.AlterConfigsRequest(),
    )


# --- log directories


def located(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without the names of the directories, and whatever lies in any of them as if it lay in one."""
    sizes = {
        (topic["name"], row["partition_index"]): row["partition_size"]
        for result in answer["results"]
        for topic in result["topics"]
        for row in topic["partitions"]
    }
    heads = [
        {
            "error": result["error_code"],
            "room": 0 < result["usable_bytes"] <= result["total_bytes"],
            "cordoned": result["is_cordoned"],
        }
        for result in answer["results"]
    ]
    return {"sizes": sizes, "heads": heads, "error": answer["error_code"]}


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        {},
        {"plain": [0]},
        {"plain": [0, 9], "three": [2, 2], "nowhere": [0]},
        {"plain": []},
    ],
)
def test_log_directories_are_described_as_kafka_does(pair: Pair, wanted) -> None:
    kind = m.DescribeLogDirsRequest
    topics = None
    if wanted is not None:
        topics = [
            kind.DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in wanted.items()
        ]
    for version in range(1, 6):
        theirs, own = pair.ask(kind(topics=topics), version)
        assert located(own) == located(theirs), version


def test_a_log_directory_that_fails_is_told_while_the_broker_lives_on(rig, tmp_path: Path) -> None:
    """Appends to partitions on it fail; DescribeLogDirs names it, and the partitions of the other directory go on."""
    one, two = tmp_path / "one", tmp_path / "two"
    broker = rig.broker({"log.dirs": f"{one},{two}"})
    talker = Talker(broker.port, one)
    send(talker, talker.make_topic("t", 2), [0, 1])
    (one / "log-start-offset-checkpoint.tmp").mkdir()  # nothing can be written there any more
    answer = talker.call(deletion(("t", 0, 1), ("t", 1, 1)), 2)
    assert sorted(error_codes(answer)) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    results = talker.call(m.DescribeLogDirsRequest(topics=None), 5).results
    talker.close()
    assert {result.log_dir: result.error_code for result in results} == {
        str(one): ErrorCode.KAFKA_STORAGE_ERROR,
        str(two): 0,
    }


# --- permissions, of which there are none


def test_without_an_authorizer_acls_are_refused_as_kafka_does(pair: Pair) -> None:
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
    creation, deletion_ = m.CreateAclsRequest, m.DeleteAclsRequest
    for each in filters:
        row = deletion_.DeleteAclsFilter(**each)
        pair.same(m.DescribeAclsRequest(**each), deletion_(filters=[row, row]))
    pair.same(*(creation(creations=[creation.AclCreation(**each)] * 2) for each in acls))
    pair.same(creation(), deletion_())


def test_nobody_has_scram_credentials_and_who_is_asked_for_is_not_there(pair: Pair) -> None:
    kind = m.DescribeUserScramCredentialsRequest
    for names in ([], ["a"], ["a", "a"], [""]):
        pair.same(kind(users=[kind.UserName(name=name) for name in names]))
    pair.same(kind(users=None))


# --- leaders and replicas


def election(kind: int, topics: dict[str, list[int]] | None) -> m.ElectLeadersRequest:
    rows = None
    if topics is not None:
        rows = [
            m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=30_000)


def test_elections_that_nobody_needs_are_refused_as_kafka_does(pair: Pair) -> None:
    pair.same(
        election(0, {"plain": [0, 9], "three": [2, 1, 1], "nowhere": [0]}),
        election(1, {"plain": [0]}),
        election(2, {"plain": [0]}),
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
        timeout_ms=30_000,
        topics=[kind.ReassignableTopic(name=name, partitions=[partition])],
        allow_replication_factor_change=may_change_factor,
    )


def test_replicas_stay_and_moves_are_refused_as_kafka_does(pair: Pair) -> None:
    for replicas in ([1], [], [1, 1], [2], [1, 2], [-1], None):
        for may_change_factor in (True, False):
            pair.same(reassignment("plain", 0, replicas, may_change_factor=may_change_factor))
        pair.same(reassignment("plain", 9, replicas), reassignment("nowhere", 0, replicas))
    pair.same(m.AlterPartitionReassignmentsRequest(timeout_ms=1000))
    kind = m.ListPartitionReassignmentsRequest
    for name, index in (("plain", 0), ("plain", 9), ("nowhere", 0)):
        topic = kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=[index])
        pair.same(kind(timeout_ms=1000, topics=[topic]))
    pair.same(kind(timeout_ms=1000, topics=None), kind(timeout_ms=1000, topics=[]))


def test_resources_are_listed_as_kafka_does(pair: Pair) -> None:
    kind = m.ListConfigResourcesRequest
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="consumer.session.timeout.ms", value="50000"
    )
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP, resource_name="a-group", configs=[config]
    )
    pair.same(m.IncrementalAlterConfigsRequest(resources=[resource]))
    groups = kind(resource_types=[GROUP])
    until(
        lambda: pair.kafka.call(groups, 1).config_resources
    )  # Kafka answers a change before it shows it
    asked: tuple[list[int], ...] = ([], [2], [4], [8], [16], [32], [1], [99], [2, 4, 32])
    pair.same(*(kind(resource_types=types) for types in asked))


# --- offsets of groups


def offset_deletion(group: str, *rows: tuple[str, int]) -> m.OffsetDeleteRequest:
    """rows: topic, partition."""
    kind = m.OffsetDeleteRequest
    return kind(
        group_id=group,
        topics=[
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=index)],
            )
            for name, index in rows
        ],
    )


def committed(group: str) -> m.OffsetFetchRequest:
    wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    return m.OffsetFetchRequest(groups=[wanted])


def commit(talker: Talker, group: str) -> None:
    kind = m.OffsetCommitRequest
    topics = [
        kind.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                kind.OffsetCommitRequestPartition(partition_index=index, committed_offset=3)
                for index in indexes
            ],
        )
        for name, indexes in (("plain", [0]), ("three", [0, 1, 2]))
    ]
    request = kind(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    assert not any(error_codes(talker.call(request, 9)))


def join(talker: Talker, group: str, kind: str, metadata: bytes) -> tuple[str, int]:
    """Member id and generation; the assignment is still to come."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type=kind,
        protocols=[protocol],
    )
    request.member_id = talker.call(request, 5).member_id
    answer = talker.call(request, 5)
    assert not any(error_codes(answer)), answer
    return request.member_id, answer.generation_id


def test_offsets_without_members_are_deleted_as_kafka_does(pair: Pair) -> None:
    for talker in (pair.kafka, pair.ours):
        commit(talker, "done")
    pair.same(
        offset_deletion("done", ("three", 0), ("three", 9), ("nowhere", 0)),
        offset_deletion("done", ("three", 0), ("three", 0)),
        offset_deletion("done", ("three", 1), ("three", 2)),
        offset_deletion("done"),
        offset_deletion("no-such-group", ("plain", 0)),
        offset_deletion("no-such-group", ("nowhere", 0)),
        offset_deletion("", ("plain", 0)),
    )
    theirs, own = pair.ask(committed("done"), NAMES_UP_TO)
    assert own == theirs


@pytest.mark.parametrize(
    "kind, metadata",
    [
        ("consumer", write_subscription(["plain"])),
        ("consumer", b"unreadable"),
        ("connect", b"whatever"),
    ],
)
def test_offsets_that_members_need_are_kept_as_by_kafka(pair: Pair, kind, metadata) -> None:
    """While the group rebalances, and when it is stable."""
    group = f"{kind}-{len(metadata)}"
    asked = [offset_deletion(group, row) for row in (("plain", 0), ("three", 0), ("nowhere", 0))]
    members = {}
    for talker in (pair.kafka, pair.ours):
        commit(talker, group)
        members[talker] = join(talker, group, kind, metadata)
    pair.same(*asked)
    for talker, (member, generation) in members.items():
        share = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"")
        request = m.SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member, assignments=[share]
        )
        assert not any(error_codes(talker.call(request, 3)))
    pair.same(*asked)
    theirs, own = pair.ask(committed(group), NAMES_UP_TO)
    assert own == theirs
