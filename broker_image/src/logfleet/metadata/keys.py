"""Keys and values in the metadata store, below the cluster's prefix.

| key | value | written by |
|---|---|---|
| `cluster/id` | the cluster's id | the first broker, once |
| `features` | FeaturesValue; without it the level is 1 | the first broker of a cluster; the controller, to raise it; each broker that registers rewrites the value that it found |
| `ctl` | ControllerValue | the winner of the election, on its lease; its create revision is the controller epoch |
| `receipt/ID/SLOT` | the controller epoch and a number | broker ID while it controls, with each of its transactions (`logfleet.metadata.receipts`) |
| `broker/ID` | BrokerValue | the broker, on its lease, again and again; its create revision is the broker epoch |
| `fence/ID` | FenceValue | the controller |
| `suspect/ID/REPORTER` | SuspectValue | broker REPORTER, if it cannot connect to broker ID any more; on its own lease |
| `dirs/ID` | DirectoriesValue | the broker, before it makes a log there; it stays when the broker is gone |
| `topic/NAME` | TopicValue | the controller |
| `tid/UUID` | the topic's name: for people, and for compares that the topic with this id exists | the controller, with `topic/NAME` |
| `part/UUID/INDEX` | PartitionValue | the controller; the partition's leader, when the ISR changes |
| `ready/UUID` | ReadyValue | the controller, last: before it the topic (or its new partitions) does not exist |
| `deleted/UUID` | DeletedValue | the controller; each broker removes its id once its logs are deleted |
| `config/broker/ID`, `config/broker/default` | ConfigValue | the controller |
| `quota/ENTITY`, as `quota/client-id/NAME`, `quota/client-id/NAME/user/NAME` | QuotaValue | the controller |
| `config/group/NAME` | ConfigValue | the controller |
| `pid/next` | first producer id not given away | any broker, by compare |

Values are JSON, so that a person with etcdctl can read them; unknown fields are ignored, so that
versions can be mixed. UUID is Kafka's text form of a topic id. NAME in a quota's key is
percent-encoded; `<default>` is the quota of all others. Every write of the controller compares the
create revision of `ctl`.
"""

from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

CLUSTER_ID: Final = "cluster/id"
FEATURES: Final = "features"
CONTROLLER: Final = "ctl"
RECEIPTS: Final = "receipt/"
"""Not part of an image. Not below `ctl/`, which earlier versions read by prefix."""
BROKERS: Final = "broker/"
FENCES: Final = "fence/"
SUSPECTS: Final = "suspect/"
DIRECTORIES: Final = "dirs/"
TOPICS: Final = "topic/"
TOPIC_IDS: Final = "tid/"
PARTITIONS: Final = "part/"
READY: Final = "ready/"
DELETED: Final = "deleted/"
BROKER_CONFIGS: Final = "config/broker/"
GROUP_CONFIGS: Final = "config/group/"
CLUSTER_DEFAULT: Final = "default"
"""The ID in `config/broker/ID` for values of all brokers."""
QUOTAS: Final = "quota/"
DEFAULT_ENTITY: Final = "<default>"
NEXT_PRODUCER_ID: Final = "pid/next"

NO_LEADER: Final = -1


class Endpoint(msgspec.Struct, frozen=True):
    """A listener's address.

    name: upper case. host: empty for all interfaces. port: 0 for any free one.
    """

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


class FeaturesValue(msgspec.Struct, frozen=True):
    """The finalized level of the feature `logfleet.version`.

    `logfleet.controller.brokers.feature_level`.

    by: the version of Logfleet that wrote it.
    """

    level: int = 1
    by: str = ""


class ControllerValue(msgspec.Struct, frozen=True):
    """The controller: a broker's id, and its incarnation (one per process start)."""

    broker: int
    incarnation: str


class BrokerValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A running broker.

    listeners: its advertised addresses, with real hosts and ports. rack: its zone.
    directories: `directory.id` of each of its log directories (KIP-858), which identify its disks.
    offline: by topic id (text form) the partitions in log directories that failed or are missing.
    The broker updates it.
    unclean: it did not stop cleanly before this start, so its logs may lack records that it
    acknowledged (KIP-966).
    leaving: it wants to stop, and waits until the controller lets it go.
    since_ms: when it started, by its wall clock; 0 if its version does not send it. Clocks differ,
    so only preferences may depend on it.
    level: the highest feature level that it supports; 1 if its version does not send it.
    previous_epoch: broker epoch of the last active registration that wrote its log directories
    (KIP-966: PreviousBrokerEpoch); -1 if they name none or differ; None if its version does not
    send it.
    """

    incarnation: str
    listeners: tuple[Endpoint, ...]
    rack: str | None = None
    directories: tuple[str, ...] = ()
    offline: dict[str, tuple[int, ...]] = {}
    unclean: bool = False
    leaving: bool = False
    since_ms: int = 0
    level: int = 1
    previous_epoch: BrokerEpoch | None = None


class DirectoriesValue(msgspec.Struct, frozen=True):
    """The log directories that may hold logs of a broker: `directory.id` of each (KIP-858).

    A directory that could not be read when the record was first written stands by its path instead.
    """

    ids: tuple[str, ...]


class FenceValue(msgspec.Struct, frozen=True):
    """The controller's decision on a registration: `fenced`, `active` or `draining`.

    A registration with another broker epoch counts as fenced.
    active: it may lead and join ISRs. draining: it is about to stop (Kafka: controlled shutdown).
    It joins no ISR, and stays leader and in sync only where no other broker can replace it.
    """

    broker_epoch: BrokerEpoch = msgspec.field(name="be")
    state: str


ACTIVE: Final = "active"
FENCED: Final = "fenced"
DRAINING: Final = "draining"


class SuspectValue(msgspec.Struct, frozen=True):
    """The registration whose process now refuses REPORTER's connections."""

    broker_epoch: BrokerEpoch = msgspec.field(name="be")


class TopicValue(msgspec.Struct, frozen=True):
    """id: text form of the topic id. configs: the topic's own configuration, as text."""

    id: str
    configs: dict[str, str] = {}


class PartitionValue(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """State of a partition.

    replicas: broker ids, the preferred leader first. isr: the in-sync ones, each with its broker
    epoch.
    leader: broker id or NO_LEADER. leader_epoch: +1 with every change of leader, also to the same
    broker after its restart; not when the ISR shrinks (KAFKA-15021). partition_epoch: +1 with every
    write. min_isr: min.insync.replicas in force (KAFKA-16540: it belongs to the partition, never to
    a broker).
    adding, removing: the replicas that a reassignment adds and removes (KIP-455).
    elr: eligible leaders besides the ISR (KIP-966): they left it when it was smaller than min_isr,
    and hold every committed record.
    last_leader: the newest leader, NO_LEADER if there was none; last_directory: `directory.id` of
    the log directory in which it led.
    recovering: the leader was elected uncleanly; records that it lacks are lost.
    given_up: an administrator accepted the loss of records that no replica has any more: a replica
    may start empty, and lead. Set until one leads.
    restored: the metadata store was restored from a backup that is older than the logs, and no
    replica has led since. Replicas in `elr` were in sync at the backup and may have fallen behind.
    """

    replicas: tuple[int, ...]
    isr: tuple[tuple[int, BrokerEpoch], ...]
    leader: int
    leader_epoch: LeaderEpoch = msgspec.field(name="le")
    partition_epoch: PartitionEpoch = msgspec.field(name="pe")
    min_isr: int = msgspec.field(name="misr")
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_leader: int = msgspec.field(name="last", default=NO_LEADER)
    last_directory: str = msgspec.field(name="dir", default="")
    recovering: bool = False
    given_up: bool = False
    restored: bool = False

    def changed(self, **changes: object) -> "PartitionValue":
        """The next state: this one with `changes`, by field name, and the next partition epoch."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _PARTITION_FIELDS}
        return PartitionValue(**{**fields, "partition_epoch": self.partition_epoch + 1, **changes})


_PARTITION_FIELDS: Final = PartitionValue.__struct_fields__


class ReadyValue(msgspec.Struct, frozen=True):
    """The number of partitions that the topic has, from index 0."""

    partitions: int


class DeletedValue(msgspec.Struct, frozen=True):
    """A deleted topic.

    brokers: those that still have logs of it. A broker deletes logs only by this key.
    """

    name: str
    brokers: tuple[int, ...]


ConfigValue = dict[str, str]

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs, sorted by type.

Types `user`, `client-id`, `ip`; name None: the default of that type.
"""

QuotaValue = dict[str, float]
"""Limit by quota key, e.g. `producer_byte_rate`."""


def broker(broker_id: int) -> str:
    return f"{BROKERS}{broker_id}"


def receipts(broker_id: int) -> str:
    """Prefix of all receipts of a broker."""
    return f"{RECEIPTS}{broker_id}/"


def receipt(broker_id: int, slot: int) -> str:
    return f"{RECEIPTS}{broker_id}/{slot}"


def fence(broker_id: int) -> str:
    return f"{FENCES}{broker_id}"


def suspects(broker_id: int) -> str:
    """Prefix of all suspect keys of a broker."""
    return f"{SUSPECTS}{broker_id}/"


def suspect(broker_id: int, reporter: int) -> str:
    return f"{SUSPECTS}{broker_id}/{reporter}"


def directories(broker_id: int) -> str:
    return f"{DIRECTORIES}{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}{name}"


def topic_id(uuid: str) -> str:
    return f"{TOPIC_IDS}{uuid}"


def partitions(uuid: str) -> str:
    """Prefix of all partitions of a topic."""
    return f"{PARTITIONS}{uuid}/"


def partition(uuid: str, index: int) -> str:
    return f"{PARTITIONS}{uuid}/{index}"


def ready(uuid: str) -> str:
    return f"{READY}{uuid}"


def deleted(uuid: str) -> str:
    return f"{DELETED}{uuid}"


def broker_config(broker_id: int | None) -> str:
    """broker_id: None for the values of all brokers."""
    return f"{BROKER_CONFIGS}{CLUSTER_DEFAULT if broker_id is None else broker_id}"


def quota(entity: QuotaEntity) -> str:
    parts = (f"{kind}/{_entity_name(name)}" for kind, name in entity)
    return QUOTAS + "/".join(parts)


def quota_entity(rest: str) -> QuotaEntity:
    """Inverse of `quota`, for a key without the prefix QUOTAS. Raises ValueError."""
    parts = rest.split("/")
    if len(parts) % 2:
        raise ValueError("not pairs of a type and a name")
    names = (None if name == DEFAULT_ENTITY else unquote(name) for name in parts[1::2])
    return tuple(zip(parts[::2], names, strict=True))


def _entity_name(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else quote(name, safe=":@ ")


def group_config(group: str) -> str:
    return f"{GROUP_CONFIGS}{group}"


encode = msgspec.json.Encoder().encode
