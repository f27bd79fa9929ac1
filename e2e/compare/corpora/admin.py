"""Topics and configurations as administrators handle them. Source: ReplicationControlManager, ConfigurationControlManager."""

from typing import Any, Final

from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_NAME

from e2e.compare import requests as r
from e2e.compare.case import Case
from e2e.compare.corpora.reading import BAD_NAMES, UNKNOWN_ID
from e2e.compare.corpora.versions import advertised
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("admin")
LATER: Final = Corpus("admin")
"""Cases of APIs that are not in every broker of ours: run as soon as they are advertised."""
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NAMED_BY: Final = {"delete-records": "DeleteRecords", "offset-delete": "OffsetDelete"}


def corpus(ours: Side) -> Corpus:
    """All cases that the APIs that `ours` advertises allow."""
    served = advertised(ours)
    later = [case for case in LATER.cases if API_BY_NAME[_api(case)].key in served]
    return Corpus("admin", [*CORPUS.cases, *later])


def _api(case: Case) -> str:
    return next(api for prefix, api in NAMED_BY.items() if case.name.startswith(prefix))


# --- CreateTopics


def creatable(side: Side, name: str, **fields: Any) -> m.CreateTopicsRequest.CreatableTopic:
    topic: m.CreateTopicsRequest.CreatableTopic = r.creatable(side.own_name(name), **fields)
    return topic


def create(
    side: Side, *topics: m.CreateTopicsRequest.CreatableTopic, version: int = 7, check: bool = False
) -> None:
    side.ask(r.create(*topics, validate_only=check), version)
    side.await_changes()


@CORPUS.versions("CreateTopics")
def names_of_topics(side: Side, version: int) -> None:
    for name in (*BAD_NAMES[:4], BAD_NAMES[5], *BAD_NAMES[6:]):
        create(side, r.creatable(name), version=version)
    create(side, creatable(side, "a.b"), version=version)
    for name in ("a.b", "a_b", "a-b"):
        create(side, creatable(side, name), version=version)
    create(side, creatable(side, "twice"), creatable(side, "twice"), version=version)
    create(side, version=version)


@CORPUS.versions("CreateTopics", only=(2, 5, 7))
def partitions_and_replicas(side: Side, version: int) -> None:
    numbers = (1, 0, -1, -2, 2)
    for partitions in numbers:
        for replicas in numbers:
            name = f"t{partitions}x{replicas}"
            topic = creatable(side, name, partitions=partitions, replicas=replicas)
            create(side, topic, version=version, check=True)


@CORPUS.versions("CreateTopics", only=(2, 7))
def assignments_by_hand(side: Side, version: int) -> None:
    kind = m.CreateTopicsRequest.CreatableReplicaAssignment
    layouts: list[dict[int, list[int]]] = [
        {0: [1]},
        {0: [1], 1: [1]},
        {0: [2]},
        {0: [1, 1]},
        {0: []},
        {1: [1]},
        {0: [1], 2: [1]},
        {-1: [1]},
        {0: [1, 2]},
    ]
    for number, assigned in enumerate(layouts):
        rows = [kind(partition_index=index, broker_ids=ids) for index, ids in assigned.items()]
        for counts in ((-1, -1), (1, 1), (-1, 1), (1, -1)):
            name = f"t{number}-{counts[0]}-{counts[1]}"
            topic = creatable(
                side, name, partitions=counts[0], replicas=counts[1], assignments=rows
            )
            create(side, topic, version=version, check=True)


@CORPUS.versions("CreateTopics", only=(2, 5, 7))
def configs_of_new_topics(side: Side, version: int) -> None:
    kind = m.CreateTopicsRequest.CreatableTopicConfig
    for number, (key, value) in enumerate(
        (
            ("retention.ms", "1"),
            ("retention.ms", "-1"),
            ("retention.ms", "-2"),
            ("retention.ms", "x"),
            ("retention.ms", ""),
            ("retention.ms", None),
            ("no.such.key", "1"),
            ("cleanup.policy", "compact, delete"),
            ("cleanup.policy", "compact,compact"),
            ("cleanup.policy", ""),
            ("cleanup.policy", "none"),
            ("compression.type", "gzip"),
            ("compression.type", "none"),
            ("compression.gzip.level", "10"),
            ("segment.bytes", "13"),
            ("segment.bytes", "1048576"),
            ("min.insync.replicas", "0"),
            ("unclean.leader.election.enable", "maybe"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("message.timestamp.type", "logappendtime"),
            ("max.message.bytes", "2147483648"),
            ("remote.storage.enable", "true"),
        )
    ):
        config = kind(name=key, value=value)
        create(side, creatable(side, f"t{number}", configs=[config]), version=version)
    twice = [kind(name="retention.ms", value=value) for value in ("1", "2")]
    create(side, creatable(side, "twice", configs=twice), version=version)


@CORPUS.case
def only_validated(side: Side) -> None:
    topic = creatable(side, "t", partitions=2)
    for version in (4, 7):
        create(side, topic, version=version, check=True)
    create(side, topic)
    create(side, topic, check=True)
    side.ask(r.metadata(topic.name, allow_auto_topic_creation=False))


# --- DeleteTopics, CreatePartitions


@CORPUS.versions("DeleteTopics")
def deleting(side: Side, version: int) -> None:
    topic, other = side.topic("a"), side.topic("b")
    for names in (
        [f"{side.prefix}none"],
        ["no name!"],
        [""],
        [topic.name, topic.name],
        [topic.name, f"{side.prefix}none"],
        [topic.name],
        [other.name, topic.name],
        [],
    ):
        side.ask(r.delete(*names), version)
        side.await_changes()
    side.ask(r.metadata(topic.name, other.name, allow_auto_topic_creation=False))


@CORPUS.case
def deleting_by_id(side: Side) -> None:
    kind = m.DeleteTopicsRequest.DeleteTopicState
    topic = side.topic()
    for states in (
        [kind(name=None, topic_id=UNKNOWN_ID)],
        [kind(name=None)],
        [kind(name=topic.name, topic_id=topic.id)],
        [kind(name=None, topic_id=topic.id), kind(name=topic.name)],
        [kind(name=None, topic_id=topic.id)] * 2 + [kind(name=topic.name)],
        [kind(name=None, topic_id=topic.id), kind(name=None, topic_id=topic.id)],
        [kind(name=None, topic_id=topic.id)],
        [kind(name=None, topic_id=topic.id)],
    ):
        side.ask(m.DeleteTopicsRequest(topics=states, timeout_ms=r.TIMEOUT_MS))
        side.await_changes()


@CORPUS.case
def what_is_left_of_a_deleted_topic(side: Side) -> None:
    topic = side.topic()
    r.fill(side, topic, r.batch())
    side.ask(r.delete(topic.name))
    side.await_changes()
    for version in (12, 13):
        side.ask(r.produce(topic, r.batch()), version)
        side.ask(r.fetch(topic), version)
    side.ask(r.list_offsets(topic, -1))
    again = side.topic()
    side.ask(r.produce(MadeTopic(again.name, topic.id), r.batch()), 13)
    side.ask(r.fetch(MadeTopic(again.name, topic.id)), 13)
    side.ask(r.fetch(again), 13)


@CORPUS.versions("CreatePartitions")
def more_partitions(side: Side, version: int) -> None:
    kind = m.CreatePartitionsRequest
    topic = side.topic(partitions=2)

    def grow(count: int, *assigned: list[int], name: str = topic.name, check: bool = False) -> None:
        rows = [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        wanted = kind.CreatePartitionsTopic(name=name, count=count, assignments=rows or None)
        request = kind(topics=[wanted], timeout_ms=r.TIMEOUT_MS, validate_only=check)
        side.ask(request, version)
        side.await_changes()

    for count in (2, 1, 0, -1):
        grow(count)
    grow(3, name=f"{side.prefix}none")
    grow(3, name="no name!")
    grow(3, check=True)
    layouts: list[list[list[int]]] = [[[1], [1]], [[2]], [[1, 1]], [[1, 2]], [[]]]
    for assigned in layouts:
        grow(3, *assigned)
    grow(3, [1])
    grow(5)
    twice = kind.CreatePartitionsTopic(name=topic.name, count=9, assignments=None)
    side.ask(kind(topics=[twice, twice], timeout_ms=r.TIMEOUT_MS), version)
    side.ask(r.metadata(topic.name))


# --- configurations


def alter(
    side: Side, name: str, *configs: tuple[str, int, str | None], kind: int = TOPIC, **fields: bool
) -> None:
    side.ask(r.alter(name, *configs, kind=kind, **fields))
    side.await_changes()


def show(side: Side, name: str, *keys: str, kind: int = TOPIC) -> None:
    side.ask(r.describe_configs(name, *keys, kind=kind, include_synonyms=True))


@CORPUS.case
def configs_of_topics(side: Side) -> None:
    topic = side.topic().name
    for change in (
        ("retention.ms", SET, "5000"),
        ("retention.ms", DELETE, None),
        ("retention.ms", DELETE, "x"),
        ("retention.ms", SET, None),
        ("retention.ms", SET, "-2"),
        ("retention.ms", SET, "1.5"),
        ("retention.ms", APPEND, "1"),
        ("no.such.key", SET, "1"),
        ("no.such.key", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", APPEND, "none"),
        ("cleanup.policy", SUBTRACT, "compact"),
        ("cleanup.policy", APPEND, None),
        ("segment.ms", SET, "0"),
        ("", SET, "1"),
    ):
        alter(side, topic, change)
        show(side, topic, "retention.ms", "cleanup.policy", "segment.ms")


@CORPUS.case
def several_changes_at_once(side: Side) -> None:
    topic = side.topic().name
    one, two = ("retention.ms", SET, "5000"), ("segment.ms", SET, "6000")
    alter(side, topic, one, two)
    alter(side, topic, ("retention.ms", SET, "7000"), ("segment.ms", SET, "x"))
    alter(side, topic, one, ("retention.ms", SET, "9000"))
    alter(side, topic)
    alter(side, topic, ("retention.ms", SET, "8000"), validate_only=True)
    alter(side, topic, ("retention.ms", SET, "x"), validate_only=True)
    show(side, topic, "retention.ms", "segment.ms")
    request = r.alter(topic, one)
    request.resources *= 2
    side.ask(request)


@CORPUS.case
def resources_that_are_not_there(side: Side) -> None:
    change = ("retention.ms", SET, "5000")
    for wrong in (("retention.ms", SET, "x"), ("retention.ms", APPEND, "1"), ("no.key", SET, "1")):
        for name in (f"{side.prefix}none", "", "no name!"):
            alter(side, name, wrong)
    for kind in (0, 1, TOPIC, BROKER, LOGGER, 3, 64):
        for name in (f"{side.prefix}none", "", "2", "x"):
            if (kind, name) != (BROKER, ""):
                alter(side, name, change, kind=kind)
            side.ask(r.describe_configs(name, "retention.ms", kind=kind))


@CORPUS.case
def configs_of_brokers(side: Side) -> None:
    key = "log.cleaner.backoff.ms"
    try:
        for name in ("", "1"):
            for change in (
                (key, SET, "20000"),
                (key, SET, "x"),
                (key, SET, "-1"),
                ("node.id", SET, "2"),
                ("no.such.key", SET, "1"),
                ("log.retention.ms", SET, "1000000"),
                ("log.retention.ms", DELETE, None),
            ):
                alter(side, name, change, kind=BROKER)
                show(side, name, key, "log.retention.ms", "node.id", kind=BROKER)
        alter(side, "1", (key, DELETE, None), kind=BROKER)
        show(side, "1", key, kind=BROKER)
    finally:
        for name in ("", "1"):
            side.get(r.alter(name, (key, DELETE, None), kind=BROKER))


@CORPUS.case
def topics_inherit_from_the_cluster(side: Side) -> None:
    topic = side.topic().name
    try:
        alter(side, "", ("log.segment.bytes", SET, "2000000"), kind=BROKER)
        show(side, topic, "segment.bytes")
        alter(side, "1", ("log.segment.bytes", SET, "3000000"), kind=BROKER)
        show(side, topic, "segment.bytes")
        alter(side, topic, ("segment.bytes", SET, "4000000"))
        show(side, topic, "segment.bytes")
    finally:
        for name in ("", "1"):
            side.get(r.alter(name, ("log.segment.bytes", DELETE, None), kind=BROKER))
        side.await_changes()


@CORPUS.versions("DescribeConfigs")
def which_configs_are_told(side: Side, version: int) -> None:
    topic = side.topic(config={"retention.ms": "5000"}).name
    for keys in (["retention.ms"], ["no.such.key"], ["retention.ms", "no.such.key"], None, []):
        request = r.describe_configs(topic)
        request.resources[0].configuration_keys = keys
        for synonyms in (True, False):
            request.include_synonyms = synonyms
            side.ask(request, version)
    for name in ("1", ""):
        side.ask(r.describe_configs(name, "log.retention.hours", "broker.id", kind=BROKER), version)
    request = r.describe_configs(topic, "retention.ms")
    request.resources += r.describe_configs(f"{side.prefix}none", "retention.ms").resources
    side.ask(request, version)
    for wanted in (("retention.ms", "retention.ms"), ("segment.ms",)):  # one topic again and again
        request.resources += r.describe_configs(topic, *wanted).resources
    side.ask(request, version)


# --- what comes with further APIs


@LATER.versions("DeleteRecords")
def delete_records(side: Side, version: int) -> None:
    topic = side.topic(partitions=2)
    compacted = side.topic("compacted", config={"cleanup.policy": "compact"})
    for each in (topic, compacted):
        r.fill(side, each, *(r.batch(2) for _ in range(4)))

    def delete(offset: int, name: str = topic.name, index: int = 0) -> None:
        side.ask(r.delete_records(name, offset, index=index), version)

    for offset in (0, 3, 2, 9, -2):
        delete(offset)
        for timestamp in (-2, -1, r.T0):
            side.ask(r.list_offsets(topic, timestamp))
    for offset in (0, 2, 3, 8):
        side.ask(r.fetch(topic, offset), 12)
    delete(-1)
    side.ask(r.fetch(topic, 8), 12)
    side.ask(r.produce(topic, r.batch()), 12)
    delete(0, index=1)
    delete(-1, index=1)
    delete(0, index=7)
    delete(0, f"{side.prefix}none")
    delete(1, compacted.name)
    delete(0, "__consumer_offsets")


@LATER.case
def offset_delete(side: Side) -> None:
    kind = m.OffsetDeleteRequest
    topic, other = side.topic("a", 2), side.topic("b")
    group = f"{side.prefix}group"
    for each in (topic, other):
        side.get(r.commit(group, each, 1), 9)

    def delete(name: str, index: int = 0, of: str = group) -> None:
        row = kind.OffsetDeleteRequestPartition(partition_index=index)
        wanted = kind.OffsetDeleteRequestTopic(name=name, partitions=[row])
        side.ask(kind(group_id=of, topics=[wanted]))

    delete(f"{side.prefix}none")
    delete(topic.name, 1)
    delete(topic.name, 9)
    delete(topic.name)
    delete(topic.name)
    delete(topic.name, of=f"{group}-none")
    delete(topic.name, of="")
    side.ask(r.committed(group, None), 9)
    member, generation = r.joined(side, f"{group}-joined")
    request = r.commit(f"{group}-joined", topic, 1, member=member, generation=generation)
    side.get(request, 9)
    delete(topic.name, of=f"{group}-joined")
    side.ask(r.committed(f"{group}-joined", topic), 9)
