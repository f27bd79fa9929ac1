import pytest
from logfleet.config.broker import (
    ADMIN_LISTENER,
    BrokerConfig,
    ConfigError,
    broker_config,
    with_admin_port,
)
from logfleet.config.keys import BROKER_KEYS
from logfleet.metadata.kinds.brokers import Endpoint

DERIVED = {"static", "unknown", "without_effect"}


def test_nothing_given_means_one_broker_on_loopback():
    config = broker_config({})
    assert config.node_id == 1
    assert config.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners == config.listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("logfleet-data",)
    assert config.logfleet_metadata_store == "sqlite"
    assert config.broker_rack is None
    assert config.logfleet_admin_listener == Endpoint("HTTP", "127.0.0.1", 9644, "HTTP")


def test_every_field_is_a_key_that_says_what_it_does():
    for field in set(BrokerConfig.__struct_fields__) - DERIVED:
        assert BROKER_KEYS[field.replace("_", ".")].has_effect, field


@pytest.mark.parametrize(
    "name, text, sentence",
    [
        (
            "num.partitions",
            "x",
            "Invalid value x for configuration num.partitions: Not a number of type INT; allowed are 1..",
        ),
        (
            "num.partitions",
            "0",
            "Invalid value 0 for configuration num.partitions: Value must be at least 1; allowed are 1..",
        ),
        (
            "log.cleanup.policy",
            "x",
            "Invalid value x for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "listener.name.plaintext.max.connections",
            "x",
            (
                "listener.name.plaintext.max.connections: Invalid value x for configuration max.connections: "
                "Not a number of type INT; allowed are 0.."
            ),
        ),
        (
            "max.connections.per.ip.overrides",
            "x",
            "max.connections.per.ip.overrides: 'x' is not host:count",
        ),
        ("max.connections", "0", "Invalid max.connections 0: it must be at least 1"),
        *(
            (
                name,
                "0",
                f"{prefix}requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
            )
            for name, prefix in (
                ("log.retention.ms", ""),
                ("log.retention.minutes", "log.retention.minutes: "),
                ("log.retention.hours", "log.retention.hours: "),
            )
        ),
        (
            "log.flush.scheduler.interval.ms",
            "-1",
            "log.flush.scheduler.interval.ms: Invalid value -1 for configuration flush.ms: Value must be at least 0",
        ),
    ],
)
def test_a_bad_value_is_one_line_that_names_key_value_and_what_is_allowed(name, text, sentence):
    with pytest.raises(ConfigError) as refused:
        broker_config({name: text})
    assert (refused.value.key, refused.value.message) == (name, sentence)


def test_a_coarser_unit_that_a_finer_one_stands_before_may_be_anything():
    broker_config(
        {"log.retention.hours": "0", "log.retention.minutes": "0", "log.retention.ms": "1"}
    )


def test_limits_of_one_listener_have_an_effect_and_other_prefixed_keys_do_not():
    config = broker_config(
        {
            "listener.name.plaintext.max.connections": "5",
            "listener.name.plaintext.ssl.client.auth": "none",
            "listener.name.plaintext.nope": "x",
        }
    )
    assert config.without_effect == ("listener.name.plaintext.ssl.client.auth",)
    assert config.unknown == ("listener.name.plaintext.nope",)


def test_what_the_system_decides_unless_it_is_set():
    config = broker_config({})
    assert config.socket_send_buffer_bytes == 102400, "as Kafka's"
    assert config.socket_receive_buffer_bytes is None
    config = broker_config(
        {"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "5000"}
    )
    assert config.socket_send_buffer_bytes is None
    assert config.socket_receive_buffer_bytes == 5000
    assert config.socket_listen_backlog_size is None


def test_values_are_typed_and_kept_as_given():
    given = {
        "broker.id": "7",
        "broker.rack": "b",
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.dirs": "/data/1, /data/2",
        "logfleet.admin.listener": "0.0.0.0:8080",
    }
    config = broker_config(given)
    assert (config.node_id, config.broker_rack, config.num_partitions) == (7, "b", 3)
    assert config.auto_create_topics_enable is False
    assert config.log_dirs == ("/data/1", "/data/2")
    assert config.logfleet_admin_listener == Endpoint("HTTP", "0.0.0.0", 8080, "HTTP")
    assert config.static == {**given, "node.id": "7"}  # one setting under two names


def test_keys_to_warn_about_are_named():
    config = broker_config(
        {
            "no.such.key": "1",
            "num.io.threads": "3",
            "listener.name.plaintext.ssl.client.auth": "none",
            "num.partitions": "2",
        }
    )
    assert config.unknown == ("no.such.key",)
    assert config.without_effect == ("listener.name.plaintext.ssl.client.auth", "num.io.threads")


def test_a_kafka_file_with_a_controller_listener_works_and_the_listener_is_not_opened():
    config = broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "inter.broker.listener.name": "PLAINTEXT",
        }
    )
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092),)


def test_two_listeners_with_names_of_their_own():
    config = broker_config(
        {
            "listeners": "inside://0.0.0.0:9092,outside://0.0.0.0:9094",
            "advertised.listeners": "INSIDE://broker-1:9092,OUTSIDE://node-7:31094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert [listener.name for listener in config.listeners] == ["INSIDE", "OUTSIDE"]
    assert config.advertised_listeners[1] == Endpoint("OUTSIDE", "node-7", 31094)
    assert config.inter_broker_listener_name == "INSIDE"


def test_listening_on_all_interfaces_leaves_the_advertised_host_to_the_node():
    config = broker_config({"listeners": "PLAINTEXT://0.0.0.0:0"})
    assert config.listeners == (Endpoint("PLAINTEXT", "0.0.0.0", 0),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "", 0),)


def test_an_ipv6_address_stands_in_brackets():
    config = broker_config({"listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listeners == (Endpoint("PLAINTEXT", "::1", 9092),)


ETCD = {"logfleet.metadata.store": "etcd", "logfleet.etcd.endpoints": "h:2379", "node.id": "1"}


def test_a_fleet_names_its_etcd_and_its_node_id():
    config = broker_config(ETCD)
    assert config.logfleet_etcd_endpoints == ("h:2379",)


@pytest.mark.parametrize(
    "given, key, sentence",
    [
        ({"num.partitions": "x"}, "num.partitions", "Not a number of type INT"),
        ({"num.io.threads": "0"}, "num.io.threads", "at least 1"),
        ({"broker.id": "1", "node.id": "2"}, "broker.id", "differ"),
        ({"log.dirs": "", "log.dir": "/data"}, "log.dirs", "at least one directory"),
        ({"log.dir": ""}, "log.dirs", "at least one directory"),
        ({"listeners": "localhost:9092"}, "listeners", "not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "listeners", "not of the form"),
        ({"listeners": ""}, "listeners", "at least one address"),
        ({"advertised.listeners": "PLAINTEXT://a..b:1"}, "advertised.listeners", "name of a host"),
        ({"listeners": "X://h:1"}, "listeners", "add X:PLAINTEXT"),
        ({"listeners": "SSL://h:1"}, "listeners", "serves PLAINTEXT only"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "listeners", "different name"),
        (
            {
                "listeners": "A://h:1,B://h:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "listeners",
            "different port",
        ),
        (
            {"listener.security.protocol.map": "A=PLAINTEXT"},
            "listener.security.protocol.map",
            "NAME:PROTOCOL",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "advertised.listeners",
            "use a routable address",
        ),
        (
            {"advertised.listeners": "B://h:1", "listener.security.protocol.map": "B:PLAINTEXT"},
            "listeners",
            "add PLAINTEXT:PLAINTEXT",
        ),
        (
            {
                "advertised.listeners": "B://h:1",
                "listener.security.protocol.map": "B:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "advertised.listeners",
            "not one of listeners",
        ),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name", "PLAINTEXT"),
        (
            {"inter.broker.listener.name": "X", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name",
            "Only one of",
        ),
        ({"process.roles": "controller"}, "process.roles", "must contain broker"),
        (
            {"replica.selector.class": "com.example.Nearest"},
            "replica.selector.class",
            "allowed are .*RackAware",
        ),
        (
            {"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "5"},
            "group.min.session.timeout.ms",
            "must not exceed",
        ),
        (
            {"replica.lag.time.max.ms": "499"},
            "replica.fetch.wait.max.ms",
            "replica.lag.time.max.ms",
        ),
        (
            {"replica.socket.timeout.ms": "499"},
            "replica.fetch.wait.max.ms",
            "replica.socket.timeout.ms",
        ),
        ({"logfleet.admin.listener": "8080"}, "logfleet.admin.listener", "host:port"),
        ({**ETCD, "logfleet.etcd.endpoints": ""}, "logfleet.etcd.endpoints", "needs"),
        ({k: v for k, v in ETCD.items() if k != "node.id"}, "node.id", "needs node.id"),
        (
            {**ETCD, "logfleet.etcd.cert.location": "/c"},
            "logfleet.etcd.cert.location",
            "go together",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_key_and_what_to_do(given, key, sentence):
    with pytest.raises(ConfigError, match=sentence) as refused:
        broker_config(given)
    assert refused.value.key == key


@pytest.mark.parametrize(
    "given, described", [("127.0.0.1:0", "127.0.0.1:7"), ("[::1]:0", "[::1]:7"), (":0", ":7")]
)
def test_an_admin_port_that_the_system_chose_is_described(given: str, described: str) -> None:
    config = with_admin_port(broker_config({ADMIN_LISTENER: given}), 7)
    assert config.static == {ADMIN_LISTENER: described}
    assert config.logfleet_admin_listener == broker_config(config.static).logfleet_admin_listener
