import pytest
from logfleet.config.keys import BROKER_KEYS
from logfleet.config.server_properties.names import (
    FORMER,
    FORMER_PREFIXES,
    RENAMED,
    is_former,
    likely_key,
    sentences,
)


def test_keys_of_a_former_kafka_are_told_in_one_sentence():
    unknown = ["zookeeper.connect", "port", "inter.broker.protocol.version", "my.own"]
    former, other = sentences(unknown)
    assert former.startswith(
        "zookeeper.connect, port, inter.broker.protocol.version: made for Kafka before 4.0"
    )
    assert former.endswith("Take them out")
    assert other == "no broker knows my.own: correct the name, or take it out"
    assert list(sentences([])) == []
    (sentence,) = sentences(["host.name"])
    assert sentence.endswith("Take it out")


@pytest.mark.parametrize(
    "name, key",
    [
        ("log.retention.hour", "log.retention.hours"),
        ("num.log.partitions", "num.partitions"),
        ("log.cleanup.interval.mins", "log.retention.check.interval.ms"),
        ("retention.ms", "log.retention.ms"),
        ("mesage.max.bytes", "message.max.bytes"),
        ("org.example.plugin", None),
    ],
)
def test_a_near_miss_is_named(name, key):
    assert likely_key(name) == key
    (sentence,) = sentences([name])
    assert ("did you mean" in sentence) == (key is not None)


def test_no_key_of_today_counts_as_a_former_one():
    assert not {name for name in BROKER_KEYS if is_former(name)}
    assert set(RENAMED.values()) <= set(BROKER_KEYS)
    assert not set(RENAMED) & {*BROKER_KEYS, *FORMER}
    assert all(prefix.endswith(".") for prefix in FORMER_PREFIXES)
