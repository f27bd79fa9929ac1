import pytest
from logfleet.control.config_keys import (
    BROKER_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    ConfigError,
    ConfigType,
    UpdateMode,
)


@pytest.mark.parametrize(
    "key", [*TOPIC_KEYS.values(), *BROKER_KEYS.values()], ids=lambda key: key.name
)
def test_every_default_is_valid(key):
    key.parse(key.default)


def test_a_topic_key_and_its_synonyms_have_the_same_type_and_default():
    for name, synonyms in TOPIC_SYNONYMS.items():
        for synonym, factor in synonyms:
            if factor == 1:
                assert BROKER_KEYS[synonym].type == TOPIC_KEYS[name].type, synonym
            default = BROKER_KEYS[synonym].parse(BROKER_KEYS[synonym].default)
            if isinstance(default, int) and TOPIC_KEYS[name].type is ConfigType.LONG:
                assert str(default * factor) == TOPIC_KEYS[name].default, synonym


def test_an_effect_of_a_topic_key_is_an_effect_of_its_synonyms():
    for name, synonyms in TOPIC_SYNONYMS.items():
        for synonym, _ in synonyms:
            assert BROKER_KEYS[synonym].has_effect == TOPIC_KEYS[name].has_effect, synonym


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+5", 5),
        ("retention.ms", "-1", -1),
        ("segment.bytes", "1048576", 1_048_576),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("compression.gzip.level", "-1", -1),
        ("compression.type", " zstd ", "zstd"),
    ],
)
def test_values_are_read_as_kafka_reads_them(name, text, value):
    assert TOPIC_KEYS[name].parse(text) == value


@pytest.mark.parametrize(
    "name, text, rule",
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("segment.bytes", "14", "Value must be at least 1048576"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("compression.type", "GZIP", "String must be one of: uncompressed, zstd"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("cleanup.policy", "none", "String must be one of: compact, delete"),
        ("cleanup.policy", "delete,", "values must not be empty"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
    ],
)
def test_invalid_values_are_refused_with_the_rule(name, text, rule):
    with pytest.raises(ConfigError, match=rule) as refused:
        TOPIC_KEYS[name].parse(text)
    assert refused.value.key == name


def test_a_choice_may_ignore_case():
    assert BROKER_KEYS["group.consumer.migration.policy"].parse("Upgrade") == "Upgrade"
    with pytest.raises(ConfigError):
        BROKER_KEYS["group.consumer.migration.policy"].parse("sideways")


def test_passwords_are_sensitive_and_update_modes_are_kafkas():
    assert BROKER_KEYS["ssl.keystore.password"].is_sensitive
    assert not BROKER_KEYS["listeners"].is_sensitive
    assert BROKER_KEYS["node.id"].mode is UpdateMode.READ_ONLY
    assert BROKER_KEYS["message.max.bytes"].mode is UpdateMode.CLUSTER_WIDE
    assert BROKER_KEYS["ssl.keystore.location"].mode is UpdateMode.PER_BROKER


@pytest.mark.parametrize(
    "name, text, shown",
    [
        ("preallocate", " TRUE", "true"),
        ("retention.ms", "+5 ", "5"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("min.cleanable.dirty.ratio", " 0.50 ", "0.50"),
        ("compression.type", "zstd ", "zstd"),
    ],
)
def test_values_are_shown_as_kafka_shows_them(name, text, shown):
    assert TOPIC_KEYS[name].canonical(text) == shown


def test_no_value_stays_no_value():
    assert BROKER_KEYS["broker.rack"].parse(None) is None
