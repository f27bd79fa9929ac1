from logfleet.config.description import (
    NO_EFFECT,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_new_topic,
    describe_topic,
)
from logfleet.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from logfleet.config.topic import BrokerLayers


def test_a_topic_has_every_key_and_says_which_have_no_effect():
    described = list(describe_topic({}, BrokerLayers()))
    assert [config.name for config in described] == list(TOPIC_KEYS)
    for config in described:
        assert config.source is ConfigSource.DEFAULT
        assert config.documentation.startswith(TOPIC_KEYS[config.name].doc)
        assert config.documentation.endswith(NO_EFFECT) != TOPIC_KEYS[config.name].has_effect


def test_an_override_stands_before_all_others():
    layers = BrokerLayers(cluster={"message.max.bytes": "6"})
    described = {each.name: each for each in describe_topic({"max.message.bytes": " 5 "}, layers)}
    config = described["max.message.bytes"]
    assert (config.value, config.source) == ("5", ConfigSource.TOPIC)
    assert config.synonyms == (
        ConfigSynonym("max.message.bytes", "5", ConfigSource.TOPIC),
        ConfigSynonym("message.max.bytes", "6", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    )


def test_a_topic_key_without_a_broker_key_has_no_synonyms():
    described = {each.name: each for each in describe_topic({}, BrokerLayers())}
    assert described["remote.storage.enable"].synonyms == ()


def test_a_new_topic_owns_up_to_values_of_coarser_units():
    layers = BrokerLayers({"log.retention.hours": "24"})
    described = {each.name: each for each in describe_new_topic({"segment.ms": "1"}, layers)}
    assert described["retention.ms"].source is ConfigSource.STATIC_BROKER
    assert described["segment.ms"].source is ConfigSource.TOPIC
    assert described["segment.jitter.ms"].source is ConfigSource.DEFAULT
    assert described["remote.storage.enable"].source is ConfigSource.DEFAULT


def test_a_new_topics_own_value_is_told_as_it_was_given():
    given = {"cleanup.policy": " compact , delete,compact"}
    described = {each.name: each.value for each in describe_new_topic(given, BrokerLayers())}
    assert described["cleanup.policy"] == given["cleanup.policy"]


WHILE_SET = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
OF_AN_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka's authorizer reads them, its brokers do not list them."""


def test_a_broker_has_every_key_and_hides_what_it_does_not_know():
    layers = BrokerLayers({"plugin.key": "hunter2", "ssl.key.password": "hunter2"})
    described = {each.name: each for each in describe_broker(layers)}
    assert set(described) == {*BROKER_KEYS, "plugin.key"} - WHILE_SET - OF_AN_AUTHORIZER
    assert "hunter2" not in str(list(described.values()))
    assert described["ssl.key.password"].source is ConfigSource.STATIC_BROKER
    assert described["plugin.key"].is_sensitive


def test_the_cluster_has_what_was_set_and_keys_of_later_versions_are_left_out():
    (config,) = describe_cluster({"log.retention.ms": "7", "of.a.later.version": "1"})
    assert (config.name, config.value) == ("log.retention.ms", "7")
    assert [synonym.source for synonym in config.synonyms] == [ConfigSource.DYNAMIC_DEFAULT_BROKER]


def test_rates_of_replication_are_shown_while_they_are_set():
    layers = BrokerLayers(cluster=dict.fromkeys(WHILE_SET, "5"))
    described = {each.name: each for each in describe_broker(layers)}
    for name in WHILE_SET:
        assert described[name].source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        assert not described[name].is_read_only


def test_a_synonym_of_a_broker_is_shown_as_it_was_set():
    layers = BrokerLayers(dynamic={"log.cleanup.policy": "compact , delete"})
    described = {each.name: each for each in describe_broker(layers)}
    config = described["log.cleanup.policy"]
    assert config.value == "compact,delete"
    assert [each.value for each in config.synonyms] == ["compact , delete", "delete"]
    (config,) = describe_cluster({"log.cleanup.policy": "compact , delete"})
    assert config.value == "compact , delete"


def test_a_key_of_one_listener_is_described_with_the_key_it_stands_before():
    name = "listener.name.plaintext.max.connections"
    layers = BrokerLayers({"max.connections": "9"}, dynamic={name: "5"})
    config = {each.name: each for each in describe_broker(layers)}[name]
    assert (config.value, config.source, config.is_read_only, config.type) == (
        "5",
        ConfigSource.DYNAMIC_BROKER,
        True,
        3,
    )
    assert config.synonyms == (
        ConfigSynonym(name, "5", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("max.connections", "9", ConfigSource.STATIC_BROKER),
        ConfigSynonym("max.connections", "2147483647", ConfigSource.DEFAULT),
    )
    (config,) = describe_cluster({name: "5"})
    assert (config.name, config.value) == (name, "5")


def test_a_group_takes_from_its_brokers_what_it_does_not_set():
    layers = BrokerLayers(
        {"group.share.delivery.count.limit": "7", "group.streams.assignors": "x,y"}
    )
    described = {
        each.name: each
        for each in describe_group({"share.isolation.level": "read_committed"}, layers)
    }
    assert list(described) == list(GROUP_KEYS)
    own = described["share.isolation.level"]
    assert (own.value, own.source) == ("read_committed", ConfigSource.GROUP)
    assert [(each.name, each.value, each.source) for each in own.synonyms] == [
        ("share.isolation.level", "read_committed", 8),
        ("share.isolation.level", "read_uncommitted", 5),
    ]
    taken = described["share.delivery.count.limit"]
    assert (taken.value, taken.source) == ("7", ConfigSource.STATIC_BROKER)
    assert [each.value for each in taken.synonyms] == ["7", "5"]
    assert described["streams.assignor.name"].value == "x"
