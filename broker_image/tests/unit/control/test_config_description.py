from logfleet.control.config_description import (
    NO_EFFECT,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster,
    describe_new_topic,
    describe_topic,
)
from logfleet.control.config_keys import BROKER_KEYS, TOPIC_KEYS
from logfleet.control.topic_configs import BrokerLayers


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


def test_a_broker_has_every_key_and_hides_what_it_does_not_know():
    layers = BrokerLayers({"plugin.key": "hunter2", "ssl.key.password": "hunter2"})
    described = {each.name: each for each in describe_broker(layers)}
    assert set(described) == {*BROKER_KEYS, "plugin.key"}
    assert "hunter2" not in str(list(described.values()))
    assert described["ssl.key.password"].source is ConfigSource.STATIC_BROKER
    assert described["plugin.key"].is_sensitive


def test_the_cluster_has_what_was_set_and_keys_of_later_versions_are_left_out():
    (config,) = describe_cluster({"log.retention.ms": "7", "of.a.later.version": "1"})
    assert (config.name, config.value) == ("log.retention.ms", "7")
    assert [synonym.source for synonym in config.synonyms] == [ConfigSource.DYNAMIC_DEFAULT_BROKER]
