import pytest
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.config_changes import (
    ConfigChange,
    ConfigOperation,
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
)
from logfleet.controller.changes.topics import CONFIG_BYTES_MAX
from logfleet.wire.refusal import Refusal

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture
def topic(cluster):
    cluster.start(1)
    cluster.create("t", 1, configs={"retention.ms": "5"})

    def alter(*changes, name: str = "t"):
        answer = alter_topic_configs(
            cluster.image, cluster.epoch, name, [ConfigChange(*change) for change in changes]
        )
        if isinstance(answer, Refusal):
            return answer.error.name, answer.message
        for txn in answer:
            assert cluster.commit(txn)
        return dict(cluster.topic("t").configs)

    return alter


def test_values_are_set_and_deleted(topic):
    assert topic(("segment.ms", SET, "7"), ("retention.ms", DELETE)) == {"segment.ms": "7"}


def test_deleting_what_is_not_set_changes_nothing(cluster, topic):
    revision = cluster.image.revision
    assert topic(("segment.ms", DELETE), ("nobody.knows", DELETE)) == {"retention.ms": "5"}
    assert cluster.image.revision == revision


def test_appending_begins_with_the_default_and_adds_nothing_twice(topic):
    expected = {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert topic(("cleanup.policy", APPEND, "compact")) == expected
    assert topic(("cleanup.policy", APPEND, "compact, delete")) == expected


def test_subtracting_takes_items_away(topic):
    topic(("cleanup.policy", APPEND, "compact"))
    assert topic(("cleanup.policy", SUBTRACT, "delete"))["cleanup.policy"] == "compact"
    assert topic(("cleanup.policy", SUBTRACT, "compact"))["cleanup.policy"] == ""


class Counted(str):
    """A text whose items between commas count how often they are compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def rstrip(self, _characters=None, /):
        return self

    def split(self, separator=None, maxsplit=-1):
        return [Counted(item) for item in str.split(self, separator, maxsplit)]

    def strip(self, _characters=None, /):
        return self

    def __eq__(self, other):
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_long_lists_are_edited_without_comparing_each_item_with_each(topic, monkeypatch):
    key = "leader.replication.throttled.replicas"
    numbers = range(300)
    topic((key, SET, ",".join(f"{number}:1" for number in numbers)))
    monkeypatch.setattr(Counted, "comparisons", 0)
    named = Counted(",".join(f"{number}:{number % 2}" for number in numbers))
    expected = ",".join(f"{number}:1" for number in numbers if number % 2 == 0)
    assert topic((key, SUBTRACT, named))[key] == expected
    assert 0 < Counted.comparisons <= 2 * len(numbers)
    topic((key, APPEND, named))
    assert Counted.comparisons <= 4 * len(numbers)


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ([("foo", SET, "1")], "INVALID_CONFIG", "Unknown topic config name: foo"),
        ([("retention.ms", SET, "x")], "INVALID_CONFIG", "Not a number of type LONG"),
        ([("retention.ms", SET, None)], "INVALID_REQUEST", "Null value not supported for : rete"),
        (
            [("retention.ms", APPEND, "1")],
            "INVALID_CONFIG",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ([("foo", SUBTRACT, "1")], "INVALID_CONFIG", "Can't SUBTRACT to key foo"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE)],
            "INVALID_REQUEST",
            "Error due to duplicate config keys",
        ),
        ([("retention.ms", 4, "1")], "INVALID_REQUEST", "Unknown operations type 4"),
    ],
)
def test_wrong_changes_are_refused_with_kafkas_code(topic, changes, error, message):
    code, text = topic(*changes)
    assert code == error
    assert message in text


def test_a_topic_that_is_not_there_or_not_named(topic):
    assert topic(name="nope") == (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The topic 'nope' does not exist.",
    )
    assert topic(name="")[0] == "INVALID_REQUEST"
    assert topic(name="no name!")[0] == "INVALID_TOPIC_EXCEPTION"


@pytest.mark.parametrize("name", ["nope", "", "no name!"])
def test_a_change_that_cannot_be_made_is_told_before_a_topic_that_is_not_there(topic, name):
    assert topic(("retention.ms", APPEND, "1"), name=name)[0] == "INVALID_CONFIG"
    wrong_value = topic(("retention.ms", SET, "x"), name=name)[0]
    assert wrong_value == ("INVALID_CONFIG" if name == "nope" else topic(name=name)[0])


def test_a_change_decided_before_another_one_fails(cluster, topic):
    late = alter_topic_configs(
        cluster.image, cluster.epoch, "t", [ConfigChange("segment.ms", SET, "1")]
    )
    assert isinstance(late, tuple)
    topic(("retention.ms", SET, "6"))
    assert not cluster.commit(late[0])


def alter_broker(cluster, broker_id, *changes):
    answer = alter_broker_configs(
        cluster.image, cluster.epoch, broker_id, [ConfigChange(*change) for change in changes]
    )
    if isinstance(answer, Refusal):
        return answer.error.name, answer.message
    for txn in answer:
        assert cluster.commit(txn)
    return dict(cluster.image.configs_of_broker(broker_id).values)


def test_dynamic_broker_configs_are_kept_for_one_broker_and_for_all(cluster):
    cluster.start(1)
    assert alter_broker(cluster, 1, ("message.max.bytes", SET, "5")) == {"message.max.bytes": "5"}
    assert alter_broker(cluster, None, ("log.retention.ms", SET, "7")) == {"log.retention.ms": "7"}
    assert alter_broker(cluster, 1, ("message.max.bytes", DELETE)) == {}
    assert cluster.image.configs_of_broker(1).revision == 0
    assert alter_broker(cluster, 1, ("log.segment.bytes", DELETE)) == {}


@pytest.mark.parametrize(
    "broker_id, change, error, message",
    [
        (1, ("num.partitions", SET, "5"), "INVALID_REQUEST", "dynamically: [num.partitions]"),
        (9, ("message.max.bytes", SET, "5"), "INVALID_REQUEST", "Broker 9 is not registered."),
        (1, ("my.own.key", SET, "5"), "INVALID_CONFIG", "Unknown broker config name: my.own.key"),
        (1, ("message.max.bytes", SET, "x"), "INVALID_REQUEST", "Not a number of type INT"),
        (
            None,
            ("ssl.keystore.type", SET, "JKS"),
            "INVALID_REQUEST",
            "only per-listener using the listener prefix: [ssl.keystore.type]",
        ),
        (1, ("message.max.bytes", APPEND, "5"), "INVALID_CONFIG", "append is not allowed"),
        (1, ("my.own.key", APPEND, "5"), "INVALID_CONFIG", "Unknown config name: my.own.key"),
    ],
)
def test_wrong_broker_changes_are_refused(cluster, broker_id, change, error, message):
    cluster.start(1)
    code, text = alter_broker(cluster, broker_id, change)
    assert code == error
    assert message in text


def test_configs_of_a_broker_are_bounded_together(cluster):
    cluster.start(1)
    changes = [(f"listener.name.{'é' * 15_000}{n}.max.connections", SET, "5") for n in range(10)]
    for broker_id in (1, None):
        refused = ("INVALID_CONFIG", f"Broker configs are longer than {CONFIG_BYTES_MAX} bytes.")
        assert alter_broker(cluster, broker_id, *changes) == refused
        assert len(alter_broker(cluster, broker_id, *changes[:5])) == 5


def alter_group(cluster, name, *changes):
    answer = alter_group_configs(
        cluster.image,
        cluster.epoch,
        name,
        [ConfigChange(*change) for change in changes],
        layers=BrokerLayers(),
    )
    if isinstance(answer, Refusal):
        return answer.error.name, answer.message
    for txn in answer:
        assert cluster.commit(txn)
    return dict(cluster.image.configs_of_group(name).values)


def test_configs_of_a_group_are_kept_whether_it_exists_or_not(cluster):
    key = "share.delivery.count.limit"
    assert alter_group(cluster, "a/b ü", (key, SET, "7")) == {key: "7"}
    assert alter_group(cluster, "other") == {}
    assert alter_group(cluster, "a/b ü", (key, DELETE)) == {}
    assert cluster.image.configs_of_group("a/b ü").revision == 0


@pytest.mark.parametrize(
    "group, change, error, message",
    [
        ("", ("share.delivery.count.limit", SET, "7"), "INVALID_REQUEST", "Default group"),
        ("g", ("nope", SET, "7"), "INVALID_CONFIG", "Unknown group config name: nope"),
        ("g", ("share.delivery.count.limit", SET, "11"), "INVALID_CONFIG", "in the range 2 to 10"),
        ("g", ("streams.rack.aware.assignment.tags", APPEND, "a"), "INVALID_CONFIG", "not LIST"),
        ("g", ("errors.deadletterqueue.topic.name", SET, "x" * 2**20), "INVALID_CONFIG", "longer"),
    ],
)
def test_wrong_group_changes_are_refused(cluster, group, change, error, message):
    code, text = alter_group(cluster, group, change)
    assert code == error
    assert message in text


@pytest.mark.parametrize(
    "old, operation, text, new",
    [
        ("delete", APPEND, "compact", "delete,compact"),
        ("delete", APPEND, "delete", "delete"),
        ("delete,compact", SUBTRACT, "delete", "compact"),
        ("delete", SUBTRACT, "compact", "delete"),
        ("delete", SUBTRACT, "delete", ""),
    ],
)
def test_lists_are_edited_item_by_item(topic, old, operation, text, new):
    topic(("cleanup.policy", SET, old))
    assert topic(("cleanup.policy", operation, text))["cleanup.policy"] == new


def test_nothing_is_no_item(topic):
    code, text = topic(("cleanup.policy", APPEND, ""))
    assert (code, text) == (
        "INVALID_CONFIG",
        "Configuration 'cleanup.policy' values must not be empty.",
    )
