import pytest
from logfleet.config.broker_updates import base_key, refuse_broker_configs

PREFIX = "listener.name.plaintext."


@pytest.mark.parametrize("is_default", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"message.max.bytes": "5", "log.retention.ms": "-1"},
        {"log.retention.ms": "-2", "log.retention.bytes": "-2", "log.local.retention.ms": "-2"},
        {PREFIX + "max.connections": "5", PREFIX + "max.connection.creation.rate": "5"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    ],
)
def test_what_may_change_passes(values, is_default):
    assert refuse_broker_configs(values, is_default=is_default) is None


@pytest.mark.parametrize("is_default", [True, False])
@pytest.mark.parametrize(
    "values, code, sentence",
    [
        ({"nope": "1"}, 40, "Unknown broker config name: nope"),
        ({PREFIX + "nope": "1"}, 40, f"Unknown broker config name: {PREFIX}nope"),
        (
            {"node.id": "2", "num.partitions": "x", "message.max.bytes": "x"},
            42,
            "Cannot update these configs dynamically: [node.id, num.partitions]",
        ),
        (
            {"ssl.keystore.location": "/x"},
            42,
            (
                "These security configs can be dynamically updated only per-listener using the listener "
                "prefix: [ssl.keystore.location]"
            ),
        ),
        (
            {PREFIX + "max.connections": "x"},
            42,
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        (
            {"log.retention.ms": "0"},
            42,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            {"log.roll.ms": "0"},
            42,
            "requirement failed: log.roll.ms must be greater than or equal to 1",
        ),
        (
            {"log.roll.jitter.ms": "-1"},
            42,
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        (
            {"max.connections.per.ip": "0"},
            42,
            (
                "requirement failed: max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            ),
        ),
        (
            {PREFIX + "max.connection.creation.rate": "0"},
            42,
            f"Invalid {PREFIX}max.connection.creation.rate 0: it must be at least 1",
        ),
    ],
)
def test_what_kafka_refuses_is_refused(values, code, sentence, is_default):
    refusal = refuse_broker_configs(values, is_default=is_default)
    assert refusal is not None
    assert (refusal.error, refusal.message) == (code, sentence)


def test_what_no_topic_could_obey_is_refused():
    refusal = refuse_broker_configs({"log.flush.interval.ms": "-1"}, is_default=True)
    assert refusal is not None
    assert (refusal.error, refusal.message) == (
        42,
        "log.flush.interval.ms: Invalid value -1 for configuration flush.ms: Value must be at least 0",
    )


@pytest.mark.parametrize(
    "name", ["ssl.cipher.suites", PREFIX + "ssl.key.password", PREFIX + "connections.max.idle.ms"]
)
def test_what_belongs_to_one_broker_is_not_set_for_all(name):
    value = {name: "5"}
    assert refuse_broker_configs(value, is_default=False) is None
    refusal = refuse_broker_configs(value, is_default=True)
    assert refusal is not None
    assert refusal.message == (
        "Cannot update these configs at default cluster level, broker id must be specified: "
        f"[{name}]"
    )


def test_min_isr_belongs_to_the_cluster():
    value = {"min.insync.replicas": "2"}
    assert refuse_broker_configs(value, is_default=True) is None
    refusal = refuse_broker_configs(value, is_default=False)
    assert refusal is not None
    assert refusal.error == 40


def test_a_prefix_alone_is_no_key():
    assert base_key("listener.name.plaintext") is None
    assert base_key("listener.name.max.connections") is None
