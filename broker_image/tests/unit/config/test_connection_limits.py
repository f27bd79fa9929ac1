import pytest
from logfleet.config.connection_limits import (
    ListenerLimits,
    connection_limits,
    parse_ip_overrides,
)
from logfleet.config.keys import ConfigError
from logfleet.config.topic import BrokerLayers

NO_LIMIT = 2**31 - 1


def test_without_settings_nothing_is_limited():
    limits = connection_limits(BrokerLayers(), ["PLAINTEXT"])
    assert (limits.max_connections, limits.max_connections_per_ip) == (NO_LIMIT, NO_LIMIT)
    assert limits.max_connection_creation_rate == NO_LIMIT
    assert limits.listeners == {"PLAINTEXT": ListenerLimits(NO_LIMIT, NO_LIMIT)}


def test_a_listener_has_limits_of_its_own_only_behind_its_prefix():
    layers = BrokerLayers(
        {"max.connections": "10", "listener.name.a.max.connections": "5"},
        cluster={"listener.name.b.max.connection.creation.rate": "7"},
        dynamic={"listener.name.a.max.connections": "6"},
    )
    limits = connection_limits(layers, ["A", "B"])
    assert limits.max_connections == 10
    assert limits.listeners == {
        "A": ListenerLimits(6, NO_LIMIT),
        "B": ListenerLimits(NO_LIMIT, 7),
    }


def test_overrides_name_addresses_and_hosts():
    assert parse_ip_overrides("") == {}
    assert parse_ip_overrides(" 127.0.0.1:5, host:0,[::1]:3,fe80::1:2 ") == {
        "127.0.0.1": 5,
        "host": 0,
        "::1": 3,
        "fe80::1": 2,
    }


@pytest.mark.parametrize("text", ["x", "127.0.0.1:", "127.0.0.1:x", ":5", "127.0.0.1:-1"])
def test_what_is_no_override_is_refused(text):
    with pytest.raises(ConfigError, match="is not host:count"):
        parse_ip_overrides(text)
