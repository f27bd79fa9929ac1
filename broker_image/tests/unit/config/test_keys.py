import re
from pathlib import Path

import logfleet
import pytest
from logfleet.config.broker import broker_config
from logfleet.config.broker_updates import problem_of, refuse_broker_configs
from logfleet.config.keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigType,
    UnavailableProtection,
    UpdateMode,
    canonical_values,
)
from logfleet.config.table.security import SECURITY

ALL = [*TOPIC_KEYS.values(), *BROKER_KEYS.values(), *GROUP_KEYS.values()]


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_every_default_is_valid_and_every_key_is_described(key):
    key.parse(key.default)
    assert key.doc.endswith("."), key.doc


@pytest.mark.parametrize("keys", [TOPIC_KEYS, GROUP_KEYS])
def test_a_key_and_those_it_is_taken_from_have_the_same_type_and_default(keys):
    for name, key in keys.items():
        for source, factor in key.sources:
            if name == "streams.assignor.name":  # the first of a list
                continue
            if factor == 1:
                assert BROKER_KEYS[source].type == key.type, source
            default = BROKER_KEYS[source].parse(BROKER_KEYS[source].default)
            if isinstance(default, int) and key.type is ConfigType.LONG:
                assert str(default * factor) == key.default, source


PROTECTING = [key for key in ALL if key.harmless is not None]


def other_than_harmless(key) -> str:
    """A valid value that asks for something."""
    if key.type in {ConfigType.INT, ConfigType.LONG}:
        return "12345"
    if key.type is ConfigType.BOOLEAN:
        return "false"
    asking = [each for each in key.valid.choices if each not in key.harmless]
    return asking[0] if asking else "org.example.Anything"


@pytest.mark.parametrize("key", PROTECTING, ids=lambda key: key.name)
def test_a_key_that_asks_for_protection_we_do_not_have_is_refused_wherever_it_is_set(key):
    value = other_than_harmless(key)
    assert not key.has_effect, "what has an effect is carried out"
    for name in (key.name, f"listener.name.plaintext.{key.name}"):
        with pytest.raises(
            UnavailableProtection, match=re.escape(f"{name} asks for protection")
        ) as caught:
            broker_config({name: value})
        assert f"--override {name}=" in caught.value.message
        assert value not in caught.value.message, "it may be a secret"
        assert problem_of(name, value) is not None
        assert refuse_broker_configs({name: value}, is_default=False) is not None
    for harmless in ("", key.default, *key.harmless):
        if harmless is not None:
            broker_config({key.name: harmless})


def test_of_keys_about_security_only_such_are_without_effect_as_act_behind_tls_or_sasl():
    """Whose listeners are refused. A key of another kind has to be carried out, or marked `refused unless`."""
    named = re.compile(
        r"authoriz|acl|super|principal|policy\.class|callback\.class|delegation|reauth|auth"
    )
    lines = [line.split()[0] for line in SECURITY.splitlines() if line]
    names = {*lines, *(key.name for key in ALL if named.search(key.name))}
    for name in names:
        key = BROKER_KEYS[name]
        if not key.has_effect and key.harmless is None:
            assert name.startswith(("sasl.", "ssl.", "security.providers")) or name in DELAYS, name
    assert len(PROTECTING) >= 14


DELAYS = {"connection.failed.authentication.delay.ms"}


@pytest.mark.parametrize(
    "key", [key for key in ALL if key.has_effect], ids=lambda key: f"{key.mode.value}-{key.name}"
)
def test_the_module_that_is_said_to_act_on_a_key_knows_it(key):
    """Under the key's own name or, for a broker key, that of the topic key it gives the default of."""
    names = {key.name, key.name.replace(".", "_")}
    for topic in TOPIC_KEYS.values():
        if key.mode is not UpdateMode.TOPIC and key.name in dict(topic.sources):
            names |= {topic.name, topic.name.replace(".", "_")}
    module = Path(logfleet.__file__).parent / (key.acts_in.replace(".", "/") + ".py")
    assert any(name in module.read_text() for name in names), key.acts_in


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
        ("leader.replication.throttled.replicas", "0:1,", r"Invalid value \[0:1, \]"),
        ("remote.storage.enable", "", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
    ],
)
def test_invalid_values_are_refused_with_the_rule(name, text, rule):
    with pytest.raises(ConfigError, match=rule) as refused:
        TOPIC_KEYS[name].parse(text)
    assert refused.value.key == name


def test_only_a_topics_policy_may_be_said_twice():
    assert TOPIC_KEYS["cleanup.policy"].parse("delete,delete") == ("delete",)
    with pytest.raises(ConfigError, match="values must not be duplicated"):
        BROKER_KEYS["log.cleanup.policy"].parse("delete,delete")


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
        ("min.cleanable.dirty.ratio", " 0.50 ", "0.5"),
        ("min.cleanable.dirty.ratio", "0", "0.0"),
        ("min.cleanable.dirty.ratio", ".5d", "0.5"),
        ("min.cleanable.dirty.ratio", "-0", "-0.0"),
        ("min.cleanable.dirty.ratio", "NaN", "NaN"),
        ("min.cleanable.dirty.ratio", "1e-3", "0.001"),
        ("min.cleanable.dirty.ratio", "0.000123", "1.23E-4"),
        ("compression.type", "zstd ", "zstd"),
    ],
)
def test_values_are_shown_as_kafka_shows_them(name, text, shown):
    assert TOPIC_KEYS[name].canonical(text) == shown


@pytest.mark.parametrize(
    "text, shown",
    [
        ("9999999", "9999999.0"),
        ("1e7", "1.0E7"),
        ("12345678.5", "1.23456785E7"),
        ("1.7976931348623157e308", "1.7976931348623157E308"),
        ("-Infinity", "-Infinity"),
    ],
)
def test_large_numbers_are_shown_as_java_shows_them(text, shown):
    """What Double.toString gives for them."""
    assert BROKER_KEYS["log.cleaner.io.max.bytes.per.second"].canonical(text) == shown


def test_what_no_key_knows_or_accepts_keeps_its_spelling():
    given = {"preallocate": "TRUE", "retention.ms": " soon", "no.such.key": " A"}
    assert canonical_values(given, TOPIC_KEYS.get) == {**given, "preallocate": "true"}


def test_no_value_stays_no_value():
    assert BROKER_KEYS["broker.rack"].parse(None) is None
