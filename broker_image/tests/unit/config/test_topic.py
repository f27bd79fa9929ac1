import pytest
from logfleet.config.keys import TOPIC_KEYS, ConfigError
from logfleet.config.topic import (
    BrokerLayers,
    topic_default,
    topic_defaults,
    topic_values,
    validate_topic_configs,
)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"retention.ms": "-1", "cleanup.policy": "compact,delete"},
        {"leader.replication.throttled.replicas": "*"},
        {"follower.replication.throttled.replicas": "0:1,1:2"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    ],
)
def test_valid_settings_pass(overrides):
    validate_topic_configs(overrides)


@pytest.mark.parametrize(
    "overrides, sentence",
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"log.retention.ms": "1"}, "Unknown topic config name"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"retention.ms": "soon"}, "Not a number"),
        ({"leader.replication.throttled.replicas": "zzz"}, r"Invalid value \[zzz\]"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            r"conflict topic config setting min.compaction.lag.ms \(10\) > ",
        ),
    ],
)
def test_what_kafka_refuses_is_refused(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        validate_topic_configs(overrides)


def test_without_any_setting_the_defaults_are_kafkas():
    defaults = topic_defaults(BrokerLayers())
    assert defaults == {name: key.default for name, key in TOPIC_KEYS.items()}


@pytest.mark.parametrize(
    "static, retention_ms",
    [
        ({"log.retention.hours": "1"}, "3600000"),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, "120000"),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, "3"),
        ({"log.retention.hours": "-1"}, "-1"),
        ({"log.retention.minutes": "-7"}, "-1"),
        ({"log.retention.ms": "-2"}, "-1"),
    ],
)
def test_the_finer_unit_wins(static, retention_ms):
    assert topic_default("retention.ms", BrokerLayers(static=static)) == retention_ms


def test_the_more_specific_layer_wins():
    key = "message.max.bytes"
    layers = BrokerLayers(static={key: "1"}, cluster={key: "2"}, dynamic={key: "3"})
    assert topic_default("max.message.bytes", layers) == "3"
    assert topic_default("max.message.bytes", BrokerLayers(layers.static, layers.cluster)) == "2"
    assert topic_default("max.message.bytes", BrokerLayers(layers.static)) == "1"


def test_a_dynamic_finer_unit_beats_a_static_coarser_one():
    layers = BrokerLayers(static={"log.retention.hours": "1"}, cluster={"log.retention.ms": "5"})
    assert topic_default("retention.ms", layers) == "5"


def test_values_in_force_are_typed_and_overrides_win():
    values = topic_values({"retention.ms": "7"}, topic_defaults(BrokerLayers()))
    assert values["retention.ms"] == 7
    assert values["segment.bytes"] == 1 << 30
    assert values["cleanup.policy"] == ("delete",)
    assert set(values) == set(TOPIC_KEYS)
