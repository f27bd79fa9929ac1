"""Static configuration of a broker: server.properties and overrides become a `BrokerConfig`.

Keys, types and defaults are Kafka's (`config.keys`), so a Kafka broker's file works here. Features
that this version lacks (security protocols) are refused with a sentence, and keys without effect
are returned so that they can be logged.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.config.broker_updates import base_key, check_together, check_value
from logfleet.config.connection_limits import OF_ONE_LISTENER
from logfleet.config.keys import (
    BROKER_KEYS,
    ConfigError,
    ConfigValue,
    UnavailableProtection,
)
from logfleet.config.server_properties.variables import refuse_providers
from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.replication.nearest import LEADER_ONLY, RACK_AWARE

__all__ = ["BrokerConfig", "ConfigError", "broker_config"]

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SERVED_PROTOCOL = "PLAINTEXT"
PORT_MAX = 65_535
ADMIN_LISTENER: Final = "logfleet.admin.listener"


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration a broker was started with.

    A field `a_b_c` is the key `a.b.c`, typed, in the key's unit. `listeners` are those to open.
    `advertised_listeners` may hold an empty host or port 0, which the node replaces by its own name
    and the bound port. `static` is every key as given (text); `unknown` and `without_effect` are
    keys to warn about. Buffers and backlog are None if not set (or -1): then the system decides.
    """

    node_id: int
    broker_rack: str | None
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    inter_broker_listener_name: str
    log_dirs: tuple[str, ...]
    static: Mapping[str, str]
    unknown: tuple[str, ...]
    without_effect: tuple[str, ...]

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    max_request_partition_size_limit: int
    request_timeout_ms: int

    socket_request_max_bytes: int
    socket_receive_buffer_bytes: int | None
    socket_send_buffer_bytes: int | None
    socket_listen_backlog_size: int | None
    connections_max_idle_ms: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    quota_window_num: int
    quota_window_size_seconds: int
    replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    replication_quota_window_size_seconds: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int

    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int

    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    log_cleaner_enable: bool
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    producer_id_expiration_ms: int

    logfleet_disk_reserve_bytes: int
    logfleet_feature_level_max: int
    logfleet_metrics_series_max: int
    logfleet_replication_throttle_yields: bool
    logfleet_metadata_store: str
    logfleet_cluster_name: str
    logfleet_etcd_endpoints: tuple[str, ...]
    logfleet_etcd_ca_location: str | None
    logfleet_etcd_cert_location: str | None
    logfleet_etcd_key_location: str | None
    logfleet_admin_listener: Endpoint | None


def broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """The configuration in server.properties with its overrides.

    Raises ConfigError for the first bad key. The caller has replaced the variables of
    config.providers.
    """
    refuse_providers(properties)
    properties = _with_both_ids(properties)
    _check_each(properties)
    check_together(properties)
    given = _Given(properties)
    listeners = _listeners(given, "listeners")
    advertised = _advertised(given, listeners)
    fields: dict[str, object] = {
        "node_id": _node_id(given),
        "listeners": listeners,
        "advertised_listeners": advertised,
        "inter_broker_listener_name": _inter_broker(given, advertised),
        "log_dirs": _log_dirs(given),
        "static": dict(properties),
        "unknown": tuple(sorted(name for name in properties if base_key(name) is None)),
        "without_effect": tuple(sorted(_without_effect(properties))),
        "logfleet_admin_listener": _admin_listener(given),
    }
    for key in _SYSTEM_DEFAULTED:
        fields[key.replace(".", "_")] = _value_unless_systems(given, key)
    for name in BrokerConfig.__struct_fields__:
        if name not in fields:
            fields[name] = given.value(name.replace("_", "."))
    config = msgspec.convert(fields, BrokerConfig)
    _check_together(given, config)
    return config


def _check_each(properties: Mapping[str, str]) -> None:
    """Check each value.

    Raises ConfigError: one line with the key as given, its value, and what is allowed.
    """
    for name, text in properties.items():
        key = base_key(name)
        if key is None:
            continue
        try:
            check_value(name, text)
        except UnavailableProtection:
            raise
        except ConfigError as error:
            allowed = str(key.valid)
            if allowed in error.message:
                allowed = ""
            allowed = allowed and f"; allowed are {allowed}"
            before = "" if name == key.name else f"{name}: "
            raise ConfigError(name, f"{before}{error.message}{allowed}") from error


def _with_both_ids(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Copy node.id to broker.id or back: the two are one setting (Kafka: KafkaConfig)."""
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in properties and other not in properties:
            return {**properties, other: properties[name]}
    return properties


class _Given:
    """The properties as typed values, with defaults for those not given."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def is_set(self, key: str) -> bool:
        return key in self._properties

    def value(self, key: str) -> ConfigValue:
        return BROKER_KEYS[key].parse(self._properties.get(key, BROKER_KEYS[key].default))

    def items(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        assert value is None or isinstance(value, tuple), f"{key} is a list"
        return value or ()


def _without_effect(properties: Mapping[str, str]) -> Iterator[str]:
    for name in properties:
        key = base_key(name)
        if key is None or (name != key.name and key.name in OF_ONE_LISTENER):
            continue
        if name != key.name or not key.has_effect:
            yield name


_SYSTEM_DEFAULTED: Final = {
    "socket.receive.buffer.bytes": True,
    # large responses cost less with Kafka's 100 KiB than with a buffer that the system grows
    # (docs/internals/performance.md)
    "socket.send.buffer.bytes": False,
    "socket.listen.backlog.size": True,
}
"""Keys for which -1 means the system's value; True if that is their default too."""


def _value_unless_systems(given: "_Given", key: str) -> ConfigValue:
    is_left = _SYSTEM_DEFAULTED[key] and not given.is_set(key)
    value = None if is_left else given.value(key)
    return None if value == -1 else value


def _node_id(given: _Given) -> ConfigValue:
    if given.is_set("broker.id"):
        if given.is_set("node.id") and given.value("node.id") != given.value("broker.id"):
            raise ConfigError("broker.id", "broker.id and node.id differ; set node.id only.")
        if given.value("broker.id") != -1:
            return given.value("broker.id")
    return given.value("node.id")


def _log_dirs(given: _Given) -> tuple[str, ...]:
    directories = given.items("log.dirs" if given.is_set("log.dirs") else "log.dir")
    if not directories:
        raise ConfigError("log.dirs", "log.dirs must name at least one directory.")
    return directories


def _protocols(given: _Given) -> dict[str, str]:
    protocols = {}
    for entry in str(given.value("listener.security.protocol.map")).split(","):
        name, colon, protocol = entry.strip().partition(":")
        if not colon or protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                "listener.security.protocol.map",
                f"listener.security.protocol.map: {entry.strip()!r} is not NAME:PROTOCOL with "
                "one of " + ", ".join(_PROTOCOLS),
            )
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


def _listeners(given: _Given, key: str) -> tuple[Endpoint, ...]:
    protocols = _protocols(given)
    not_opened = {name.upper() for name in given.items("controller.listener.names")}
    listeners = []
    for endpoint in given.items(key):
        match = _ENDPOINT.fullmatch(endpoint)
        if match is None or not 0 <= int(match[3]) <= PORT_MAX:
            raise ConfigError(key, f"{key}: {endpoint!r} is not of the form NAME://host:port")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if not _is_encodable(host):
            raise ConfigError(
                key,
                f"{key}: {host!r} cannot be the name of a host: a part of it is empty or too long",
            )
        if name in not_opened:
            continue
        if name not in protocols:
            raise ConfigError(
                key,
                f"{key}: no security protocol is defined for listener {name}; "
                f"add {name}:PLAINTEXT to listener.security.protocol.map",
            )
        if protocols[name] != _SERVED_PROTOCOL:
            raise ConfigError(
                key,
                f"{key}: listener {name} asks for {protocols[name]}; this version serves "
                "PLAINTEXT only",
            )
        listeners.append(Endpoint(name, host, port))
    _check_distinct(key, listeners)
    return tuple(listeners)


def _is_encodable(host: str) -> bool:
    """Whether IDNA can encode it, which getaddrinfo does with names."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _check_distinct(key: str, listeners: list[Endpoint]) -> None:
    if not listeners:
        raise ConfigError(key, f"{key} must name at least one address, as PLAINTEXT://host:port")
    if len({listener.name for listener in listeners}) < len(listeners):
        raise ConfigError(key, f"{key}: each listener must have a different name")
    if key == "listeners":
        # One port may serve two addresses (IPv4 and IPv6), but not the same address twice.
        bound = [(listener.host, listener.port) for listener in listeners if listener.port]
        if len(set(bound)) < len(bound):
            raise ConfigError(key, f"{key}: each listener must have a different port")


def _advertised(given: _Given, listeners: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    key = "advertised.listeners"
    if not given.is_set(key):
        return tuple(
            msgspec.structs.replace(listener, host="")
            if listener.host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
            else listener
            for listener in listeners
        )
    advertised = _listeners(given, key)
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.host in {"0.0.0.0", "::"}:  # noqa: S104 - refused here
            raise ConfigError(
                key, f"{key} cannot use the meta-address {listener.host}; use a routable address"
            )
        if listener.name not in names:
            raise ConfigError(key, f"{key}: {listener.name} is not one of listeners")
    return advertised


def _inter_broker(given: _Given, advertised: tuple[Endpoint, ...]) -> str:
    key = "inter.broker.listener.name"
    name = given.value(key)
    if name is not None and given.is_set("security.inter.broker.protocol"):
        raise ConfigError(
            key, f"Only one of {key} and security.inter.broker.protocol should be set."
        )
    name = str(name or given.value("security.inter.broker.protocol")).upper()
    if name not in {listener.name for listener in advertised}:
        raise ConfigError(
            key,
            f"{key} must be one of advertised.listeners, and {name} is not; set {key} to one of "
            + ", ".join(listener.name for listener in advertised),
        )
    return name


def with_admin_port(config: BrokerConfig, port: int | None) -> BrokerConfig:
    """The configuration with this admin port, which the system chose, or with no admin listener."""
    listener, text = config.logfleet_admin_listener, ""
    assert listener is not None
    if port is not None:
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        text = f"{host}:{port}"
    return msgspec.structs.replace(
        config,
        static={**config.static, ADMIN_LISTENER: text},
        logfleet_admin_listener=None
        if port is None
        else msgspec.structs.replace(listener, port=port),
    )


def _admin_listener(given: _Given) -> Endpoint | None:
    key = ADMIN_LISTENER
    text = str(given.value(key))
    if not text:
        return None
    match = _ENDPOINT.fullmatch(f"HTTP://{text}")
    if match is None or not 0 <= int(match[3]) <= PORT_MAX:
        raise ConfigError(key, f"{key}: {text!r} is not of the form host:port")
    return Endpoint("HTTP", match[2], int(match[3]), "HTTP")


def _check_together(given: _Given, config: BrokerConfig) -> None:
    if config.replica_selector_class not in {None, RACK_AWARE, LEADER_ONLY}:
        raise ConfigError(
            "replica.selector.class",
            f"replica.selector.class={config.replica_selector_class}: allowed are "
            f"{RACK_AWARE} and {LEADER_ONLY}",
        )
    if "broker" not in given.items("process.roles"):
        raise ConfigError("process.roles", "process.roles must contain broker")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            "group.min.session.timeout.ms",
            "group.min.session.timeout.ms must not exceed group.max.session.timeout.ms",
        )
    wait_ms, key = config.replica_fetch_wait_max_ms, "replica.fetch.wait.max.ms"
    if wait_ms > config.replica_socket_timeout_ms:
        raise ConfigError(
            key, f"{key} must not exceed replica.socket.timeout.ms: fetches would time out"
        )
    if wait_ms > config.replica_lag_time_max_ms:
        raise ConfigError(
            key, f"{key} must not exceed replica.lag.time.max.ms: ISRs would shrink and grow"
        )
    _check_store(given, config)


def _check_store(given: _Given, config: BrokerConfig) -> None:
    if config.logfleet_metadata_store != "etcd":
        return
    if not config.logfleet_etcd_endpoints:
        raise ConfigError(
            "logfleet.etcd.endpoints",
            "logfleet.metadata.store=etcd needs logfleet.etcd.endpoints=host:port,...",
        )
    if not given.is_set("node.id") and not given.is_set("broker.id"):
        raise ConfigError("node.id", "logfleet.metadata.store=etcd needs node.id, one per broker")
    if (config.logfleet_etcd_cert_location is None) != (config.logfleet_etcd_key_location is None):
        raise ConfigError(
            "logfleet.etcd.cert.location",
            "logfleet.etcd.cert.location and logfleet.etcd.key.location go together",
        )
