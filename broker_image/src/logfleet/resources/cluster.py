"""The Cluster resource: a fleet of brokers in zones, with its metadata store.

Use `parse_cluster`: what it returns is valid. `crds/clusters.yaml` holds the same limits for the
Kubernetes API server.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import msgspec

from logfleet.resources.document import (
    DNS_LABEL,
    SERVICE_LABEL,
    InvalidResourceError,
    Metadata,
    Problem,
    config_values,
    decode,
)
from logfleet.resources.quantity import parse_quantity

Z = TypeVar("Z")
KIND: Final = "Cluster"
INTERNAL_PORT: Final = 9092
ADMIN_PORT: Final = 9644
# Listener names become port names, which must be unique in a container and in a Service.
ADMIN_PORT_NAME: Final = "admin"
ZONES_MAX: Final = 16
POOLS_MAX: Final = 16
BROKERS_PER_POOL_MAX: Final = 1000
# Services are named CLUSTER-LISTENER-ID; a DNS label has at most 63 characters.
CLUSTER_NAME_LENGTH_MAX: Final = 32
# A StatefulSet's name with its revision hash must fit a label of 63 characters, and so must a pod's
# host name: CLUSTER-POOL-ZONE has 48, "-ORDINAL" and the hash take the rest.
SET_NAME_LENGTH_MAX: Final = 48
# Pool names become parts of object names CLUSTER-POOL...; other objects use these.
NOT_SET: Final = -1
RESERVED_POOLS: Final = frozenset({"bootstrap", "brokers", "config", "etcd", "record", "topics"})
# Keys whose values follow from the rest of the spec.
OWNED_KEYS: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
    }
)
OWNED_PREFIXES: Final = ("logfleet.", "controller.")

_VERSION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_POOL_NAME: Final = re.compile(r"[a-z0-9]{1,16}")
_LISTENER_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,14}")
_HOST: Final = re.compile(r"[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?")


class Storage(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One volume per pod; class None is the default class.

    This version never changes either field.
    """

    size: str
    class_: str | None = msgspec.field(default=None, name="class")


class Resources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """CPU and memory of one broker, as in a pod."""

    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class Pool(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Brokers with the same storage and resources.

    replicas: their number in all zones together, spread evenly, the rest to the first zones; may be
    left out if `spec.replicas` sets it. zones: None means all of the Cluster's zones.
    """

    name: str
    storage: Storage
    replicas: int = NOT_SET
    zones: list[str] | None = None
    resources: Resources = Resources()


class ListenerSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A port that clients connect to.

    type: `internal` is reached inside the Kubernetes cluster; `nodeport` through a port of the node
    that the broker runs on. advertised_host, for nodeport only: the host that clients outside
    connect to instead of that node's address: one name for all brokers, each with its own port,
    which every node forwards.
    """

    name: str
    port: int
    type: Literal["internal", "nodeport"]
    advertised_host: str | None = None


def _internal_only() -> list[ListenerSpec]:
    return [ListenerSpec(name="internal", port=INTERNAL_PORT, type="internal")]


CRON_FIELDS: Final = 5
SNAPSHOTS_MAX: Final = 1_000


class Snapshots(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Snapshots of etcd.

    schedule: cron's five fields, UTC. claim_name: of an existing volume claim. keep: how many of
    the newest files are kept.
    """

    schedule: str
    claim_name: str
    keep: int = 7


class ManagedMetadata(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An etcd that the operator runs for this Cluster, 1 or 3 members."""

    replicas: int
    storage: Storage = Storage(size="2Gi")
    snapshots: Snapshots | None = None


class MetadataSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The metadata store: exactly one of the two.

    endpoints: HOST:PORT of the members of an external etcd, used without TLS.
    """

    managed: ManagedMetadata | None = None
    endpoints: list[str] | None = None


class Scaling(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What happens to replicas and volumes when brokers are added or removed.

    on_scale_up: whether new brokers get their share at once. throttle: bytes per second and broker
    that moves may take. volumes: whether the volumes of removed brokers are kept.
    """

    on_scale_up: Literal["Rebalance", "None"] = "Rebalance"
    throttle: str = "50Mi"
    volumes: Literal["Retain", "Delete"] = "Retain"

    @property
    def bytes_per_s(self) -> int:
        """The throttle in bytes per second, 0 if it is not a quantity."""
        return int(parse_quantity(self.throttle) or 0)


class ClusterSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The desired state in a user's resource.

    zones: values of the node label topology.kubernetes.io/zone; empty means no zones. config:
    Kafka's broker keys. version: of Logfleet, a tag of the operator's default image. image: used
    instead; None for both means the operator's default. feature_level: what brokers may write once
    all support it; None leaves it as it is. paused: nothing is changed. replicas: brokers of the
    only pool, overriding the pool's own value: `kubectl scale` sets it.
    """

    pools: list[Pool]
    metadata: MetadataSpec
    zones: list[str] = []
    config: dict[str, str | int] = {}
    listeners: list[ListenerSpec] = msgspec.field(default_factory=_internal_only)
    image: str | None = None
    paused: bool = False
    scaling: Scaling = Scaling()
    replicas: int | None = None
    version: str | None = None
    feature_level: int | None = None


class ClusterResource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A whole Cluster document."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: ClusterSpec
    status: dict[str, object] | None = None

    @property
    def config(self) -> dict[str, str]:
        """The wanted broker configuration, values as strings."""
        return config_values(self.spec.config)

    @property
    def brokers(self) -> int:
        """The number of brokers of all pools together."""
        return sum(pool.replicas for pool in self.spec.pools)

    @property
    def internal_listener(self) -> ListenerSpec:
        """The listener that brokers and the operator use."""
        return next(entry for entry in self.spec.listeners if entry.type == "internal")


def zones_of(cluster: ClusterSpec, pool: Pool) -> list[str]:
    """The zones that `pool` spreads over, in order; [""] if the Cluster has none."""
    return (cluster.zones if pool.zones is None else pool.zones) or [""]


def zone_that_gives(counts: Mapping[Z, int]) -> Z:
    """The zone that loses a broker when there are to be fewer: one with most, the last of those.

    counts: brokers by zone, in the order of the zones.
    """
    return max(reversed(list(counts)), key=counts.__getitem__)


def set_name(cluster: str, pool: str, zone: str) -> str:
    """The name of the group of brokers of one pool in one zone ("" for no zone)."""
    return "-".join(part for part in (cluster, pool, zone) if part)


def parse_cluster(document: object) -> ClusterResource:
    """Return the Cluster that `document` (a mapping as YAML gives it) describes.

    Raises InvalidResourceError naming every field that is wrong and what to write.
    """
    cluster = _with_replicas(decode(document, KIND, ClusterResource))
    spec = cluster.spec
    problems = [
        *_replicas_problems(spec),
        *_zone_problems(spec),
        *_pools_problems(cluster),
        *_listener_problems(spec.listeners),
        *_metadata_problems(spec.metadata),
        *_config_problems(spec.config),
        *_scaling_problems(spec.scaling),
        *_version_problems(spec),
    ]
    if not SERVICE_LABEL.fullmatch(cluster.metadata.name):
        name = cluster.metadata.name
        problems.insert(
            0,
            Problem(
                "metadata.name",
                f"{name!r} cannot name a Service: use lower case letters, digits and '-', "
                "a letter first",
            ),
        )
    if len(cluster.metadata.name) > CLUSTER_NAME_LENGTH_MAX:
        problems.append(
            Problem("metadata.name", f"has more than {CLUSTER_NAME_LENGTH_MAX} characters")
        )
    if problems:
        raise InvalidResourceError(problems)
    return cluster


def _with_replicas(cluster: ClusterResource) -> ClusterResource:
    """Apply `spec.replicas` to the only pool."""
    spec = cluster.spec
    if spec.replicas is None or len(spec.pools) != 1:
        return cluster
    pools = [msgspec.structs.replace(spec.pools[0], replicas=spec.replicas)]
    return msgspec.structs.replace(cluster, spec=msgspec.structs.replace(spec, pools=pools))


def _replicas_problems(spec: ClusterSpec) -> list[Problem]:
    if spec.replicas is None or len(spec.pools) == 1:
        return []
    return [
        Problem(
            "spec.replicas",
            f"there are {len(spec.pools)} pools: leave it out, and write the replicas of each pool",
        )
    ]


def _version_problems(spec: ClusterSpec) -> list[Problem]:
    problems = []
    if spec.version is not None and not _VERSION.fullmatch(spec.version):
        message = f"{spec.version!r} is not a tag of an image: write one such as 0.2.0"
        problems.append(Problem("spec.version", message))
    if spec.feature_level is not None and spec.feature_level < 1:
        problems.append(Problem("spec.featureLevel", f"is {spec.feature_level}, write 1 or more"))
    return problems


def _scaling_problems(scaling: Scaling) -> list[Problem]:
    if scaling.bytes_per_s >= 1:
        return []
    message = f"{scaling.throttle!r} is not a number of bytes per second: write one such as 50Mi"
    return [Problem("spec.scaling.throttle", message)]


def _zone_problems(spec: ClusterSpec) -> list[Problem]:
    problems = []
    for index, zone in enumerate(spec.zones):
        if not DNS_LABEL.fullmatch(zone):
            problems.append(
                Problem(
                    f"spec.zones[{index}]",
                    f"{zone!r} cannot be part of a name: use lower case letters, digits and '-'",
                )
            )
    problems += _repeated("spec.zones", spec.zones)
    if len(spec.zones) > ZONES_MAX:
        problems.append(Problem("spec.zones", f"has {len(spec.zones)}, at most {ZONES_MAX} fit"))
    return problems


def _pools_problems(cluster: ClusterResource) -> list[Problem]:
    pools = cluster.spec.pools
    if not 1 <= len(pools) <= POOLS_MAX:
        return [Problem("spec.pools", f"has {len(pools)}, write 1 to {POOLS_MAX} pools")]
    problems = _repeated("spec.pools", [pool.name for pool in pools])
    for index, pool in enumerate(pools):
        problems += _pool_problems(cluster, pool, f"spec.pools[{index}]")
    return problems


def _pool_problems(cluster: ClusterResource, pool: Pool, path: str) -> list[Problem]:
    problems = []
    if not _POOL_NAME.fullmatch(pool.name):
        problems.append(
            Problem(f"{path}.name", f"{pool.name!r}: use 1 to 16 lower case letters and digits")
        )
    elif pool.name in RESERVED_POOLS:
        problems.append(Problem(f"{path}.name", f"{pool.name} is reserved, choose another name"))
    if pool.replicas == NOT_SET:
        problems.append(Problem(f"{path}.replicas", "is missing"))
    elif not 1 <= pool.replicas <= BROKERS_PER_POOL_MAX:
        problems.append(
            Problem(
                f"{path}.replicas", f"is {pool.replicas}, write 1 to {BROKERS_PER_POOL_MAX} brokers"
            )
        )
    if pool.zones is not None:
        problems += _pool_zone_problems(cluster.spec.zones, pool.zones, f"{path}.zones")
    for zone in zones_of(cluster.spec, pool):
        name = set_name(cluster.metadata.name, pool.name, zone)
        if len(name) > SET_NAME_LENGTH_MAX:
            problems.append(
                Problem(
                    f"{path}.name",
                    f"CLUSTER-POOL-ZONE {name} has {len(name)} characters, at most "
                    f"{SET_NAME_LENGTH_MAX} fit a pod's labels: shorten one of the names",
                )
            )
    problems += _storage_problems(pool.storage, f"{path}.storage")
    for kind, amounts in (("requests", pool.resources.requests), ("limits", pool.resources.limits)):
        for name, amount in amounts.items():
            problems += _quantity_problems(amount, f"{path}.resources.{kind}.{name}")
    return problems


def _pool_zone_problems(all_zones: list[str], zones: list[str], path: str) -> list[Problem]:
    if not zones:
        return [Problem(path, "is empty: leave it out for all zones, or name some")]
    problems = _repeated(path, zones)
    for index, zone in enumerate(zones):
        if zone not in all_zones:
            known = ", ".join(all_zones) or "none"
            problems.append(Problem(f"{path}[{index}]", f"{zone} is not in spec.zones ({known})"))
    return problems


def _listener_problems(listeners: list[ListenerSpec]) -> list[Problem]:
    problems = [
        *_repeated("spec.listeners", [listener.name for listener in listeners]),
        *_repeated("spec.listeners", [str(listener.port) for listener in listeners]),
    ]
    if sum(listener.type == "internal" for listener in listeners) != 1:
        problems.append(
            Problem("spec.listeners", "exactly one listener of type internal is needed")
        )
    for index, listener in enumerate(listeners):
        path = f"spec.listeners[{index}]"
        if not _LISTENER_NAME.fullmatch(listener.name):
            problems.append(
                Problem(
                    f"{path}.name",
                    f"{listener.name!r}: use up to 15 lower case letters and digits, a letter "
                    "first",
                )
            )
        elif listener.name == ADMIN_PORT_NAME:
            problems.append(
                Problem(f"{path}.name", f"{listener.name} is reserved, choose another name")
            )
        if not 1024 <= listener.port <= 65535 or listener.port == ADMIN_PORT:
            problems.append(
                Problem(
                    f"{path}.port",
                    f"is {listener.port}, write 1024 to 65535 but not {ADMIN_PORT} (health, "
                    "metrics)",
                )
            )
        if listener.advertised_host is not None:
            problems += _host_problems(listener, f"{path}.advertisedHost")
    return problems


def _host_problems(listener: ListenerSpec, path: str) -> list[Problem]:
    if listener.type != "nodeport":
        return [Problem(path, "is for listeners of type nodeport only, leave it out")]
    if not _HOST.fullmatch(listener.advertised_host or ""):
        return [Problem(path, f"{listener.advertised_host!r} is not a host name or address")]
    return []


def _snapshot_problems(snapshots: Snapshots | None) -> list[Problem]:
    path, problems = "spec.metadata.managed.snapshots", list[Problem]()
    if snapshots is None:
        return problems
    if len(snapshots.schedule.split()) != CRON_FIELDS:
        message = (
            f"{snapshots.schedule!r} is not a schedule: write cron's five fields, such as 17 "
            "* * * *"
        )
        problems.append(Problem(f"{path}.schedule", message))
    if not snapshots.claim_name:
        problems.append(Problem(f"{path}.claimName", "is empty, write a claim's name"))
    if not 1 <= snapshots.keep <= SNAPSHOTS_MAX:
        message = f"is {snapshots.keep}, write a number from 1 to {SNAPSHOTS_MAX}"
        problems.append(Problem(f"{path}.keep", message))
    return problems


def _metadata_problems(metadata: MetadataSpec) -> list[Problem]:
    if (metadata.managed is None) == (metadata.endpoints is None):
        return [Problem("spec.metadata", "write exactly one of managed and endpoints")]
    if metadata.managed is not None:
        problems = _storage_problems(metadata.managed.storage, "spec.metadata.managed.storage")
        problems += _snapshot_problems(metadata.managed.snapshots)
        if metadata.managed.replicas not in {1, 3}:
            problems.append(
                Problem(
                    "spec.metadata.managed.replicas",
                    f"is {metadata.managed.replicas}, write 1 (a trial) or 3",
                )
            )
        return problems
    if not metadata.endpoints:
        return [Problem("spec.metadata.endpoints", "is empty, write etcd's HOST:PORT")]
    return [
        Problem(f"spec.metadata.endpoints[{index}]", f"{endpoint!r}: write HOST:PORT")
        for index, endpoint in enumerate(metadata.endpoints)
        if not re.fullmatch(r"[^/:\s]+:\d{1,5}", endpoint)
    ]


def _storage_problems(storage: Storage, path: str) -> list[Problem]:
    return _quantity_problems(storage.size, f"{path}.size")


def _quantity_problems(amount: str | int, path: str) -> list[Problem]:
    value = parse_quantity(amount)
    if value is None or value <= 0:
        return [Problem(path, f"{amount!r} is not a positive quantity, write for example 10Gi")]
    return []


def _config_problems(config: dict[str, str | int]) -> list[Problem]:
    return [
        Problem(f"spec.config.{key}", "follows from the rest of the spec, leave it out")
        for key in sorted(config)
        if key in OWNED_KEYS or key.startswith(OWNED_PREFIXES)
    ]


def _repeated(path: str, values: list[str]) -> list[Problem]:
    twice = sorted({value for value in values if values.count(value) > 1})
    return [Problem(path, f"{value} is there twice") for value in twice]
