"""Keys and values that brokers and the controller keep in the metadata store, below the cluster's prefix.

| key | value | written by |
|---|---|---|
| `cluster/id` | the cluster's id | the first broker, once |
| `features` | FeaturesValue; without it the level is 1 | the first broker of a cluster; the controller, to raise it; every broker that registers, as it finds it |
| `ctl` | ControllerValue | the winner of the election, on its lease; its create revision is the controller epoch |
| `receipt/ID/SLOT` | the controller epoch and a number | broker ID while it controls, with each of its transactions (`logfleet.metadata.receipts`) |
| `broker/ID` | BrokerValue | the broker, on its lease, again and again; its create revision is the broker epoch |
| `fence/ID` | FenceValue | the controller |
| `suspect/ID/REPORTER` | SuspectValue | a broker that can no longer connect to another, on its own lease |
| `dirs/ID` | DirectoriesValue | the broker, before it makes a log there; it stays when the broker is gone |
| `topic/NAME` | TopicValue | the controller |
| `tid/UUID` | the topic's name: for people, and to compare that this very topic exists | the controller, with `topic/NAME` |
| `part/UUID/INDEX` | PartitionValue | the controller; the partition's leader, when the ISR changes |
| `ready/UUID` | ReadyValue | the controller, last of all: before it the topic (or its growth) is not there |
| `deleted/UUID` | DeletedValue | the controller; each broker takes itself out when its logs are gone |
| `config/broker/ID`, `config/broker/default` | ConfigValue | the controller |
| `quota/ENTITY`, as `quota/client-id/NAME`, `quota/client-id/NAME/user/NAME` | QuotaValue | the controller |
| `config/group/NAME` | ConfigValue | the controller |
| `pid/next` | first producer id not given away | any broker, by compare |

Values are JSON, so that a person with etcdctl can read them; unknown fields are ignored, so that versions can be mixed.
UUID is Kafka's text form of a topic id. NAME in a quota's key is percent-encoded, `<default>` stands for what has no quota of its own. Every write of the controller compares the create revision of `ctl`.
"""

from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

CLUSTER_ID: Final = "cluster/id"
FEATURES: Final = "features"
CONTROLLER: Final = "ctl"
RECEIPTS: Final = "receipt/"
"""Nothing that is in an image, and no beginning of what an earlier version reads, as `ctl/` would be."""
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
"""Stands for the id of a broker in `config/broker/ID`: values for all brokers."""
QUOTAS: Final = "quota/"
DEFAULT_ENTITY: Final = "<default>"
NEXT_PRODUCER_ID: Final = "pid/next"

NO_LEADER: Final = -1


class Endpoint(msgspec.Struct, frozen=True):
    """One address: `name` is upper case, `host` empty for all interfaces, `port` 0 for any free one."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


class FeaturesValue(msgspec.Struct, frozen=True):
    """The finalized level of the feature `logfleet.version` (`logfleet.control.brokers.feature_level`). by: the version of Logfleet that wrote it so."""

    level: int = 1
    by: str = ""


class ControllerValue(msgspec.Struct, frozen=True):
    """Who controls: a broker's id and the incarnation (one per process start) that won."""

    broker: int
    incarnation: str


class BrokerValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A running broker: `listeners` are its advertised addresses, with real hosts and ports; `rack` is its zone.

    directories: `directory.id` of each of its log directories (KIP-858), by which a replica's disk is known again.
    offline: by topic id (text form) the partitions in log directories that failed or are missing. The broker writes it anew when that changes.
    unclean: it did not stop cleanly before this start, so that its logs may lack what it had acknowledged (KIP-966). leaving: it is
    asked to stop, and would be let go first. since_ms: when this start was, by its wall clock, 0 if it does not tell; nothing but a preference may rest on that.
    level: the highest feature level that it can do; a version from before there were any does not say, and can do 1.
    previous_epoch: broker epoch of the last active registration that wrote its log directories
    (KIP-966: PreviousBrokerEpoch), -1 if they name none or differ, None from a version that does
    not send it.
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
    previous_epoch: int | None = None


class DirectoriesValue(msgspec.Struct, frozen=True):
    """Log directories that hold or may hold logs of a broker: `directory.id` of each (KIP-858).

    Instead of its id, the path of one that could not be read when the record was made first.
    """

    ids: tuple[str, ...]


class FenceValue(msgspec.Struct, frozen=True):
    """What the controller holds a broker for: `fenced`, `active` or `draining`; nothing but fenced for any other broker epoch.

    active: it may lead and join ISRs. draining: it may leave (Kafka: controlled shutdown); it stays leader and in sync where nobody
    can take its place, and joins nothing.
    """

    broker_epoch: int = msgspec.field(name="be")
    state: str


ACTIVE: Final = "active"
FENCED: Final = "fenced"
DRAINING: Final = "draining"


class SuspectValue(msgspec.Struct, frozen=True):
    """The registration to whose process REPORTER was connected, and is refused now."""

    broker_epoch: int = msgspec.field(name="be")


class TopicValue(msgspec.Struct, frozen=True):
    """`id`: text form of the topic id. `configs`: what was set for the topic, as text."""

    id: str
    configs: dict[str, str] = {}


class PartitionValue(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """State of a partition.

    replicas: broker ids, the preferred leader first. isr: the in-sync ones, each with its broker epoch.
    leader: broker id or NO_LEADER. leader_epoch: +1 with every change of leader, also to the same broker after
    its restart; not when the ISR shrinks (KAFKA-15021). partition_epoch: +1 with every write. min_isr: min.insync.replicas in
    force (KAFKA-16540: it belongs to the partition, never to a broker).
    adding, removing: those of `replicas` that a reassignment brings or takes away (KIP-455).
    elr: eligible leaders besides the ISR (KIP-966): they left it when it was smaller than min_isr, and hold every committed record.
    last_leader: whoever led last, NO_LEADER if nobody ever did; last_directory: `directory.id` of the disk on which it led.
    recovering: the leader came by an unclean election, and what it lacks is lost.
    given_up: somebody has declared that what nobody has any more is lost: a replica may begin empty, and lead. Until one does.
    restored: the state is older than the logs, as the metadata store was restored, and nobody has led since. Those in `elr` were in sync then, and may have fallen behind.
    """

    replicas: tuple[int, ...]
    isr: tuple[tuple[int, int], ...]
    leader: int
    leader_epoch: int = msgspec.field(name="le")
    partition_epoch: int = msgspec.field(name="pe")
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
        """The next state: this one but for `changes`, which are named as the fields."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _PARTITION_FIELDS}
        return PartitionValue(**{**fields, "partition_epoch": self.partition_epoch + 1, **changes})


_PARTITION_FIELDS: Final = PartitionValue.__struct_fields__


class ReadyValue(msgspec.Struct, frozen=True):
    """How many partitions (from index 0) of the topic are there."""

    partitions: int


class DeletedValue(msgspec.Struct, frozen=True):
    """A deleted topic whose logs `brokers` still have to remove. Without this key no log is ever removed."""

    name: str
    brokers: tuple[int, ...]


ConfigValue = dict[str, str]

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: pairs of `user`, `client-id` or `ip` with a name, by type; None as a name is the default of that type."""

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
    """Prefix of all reports on a broker."""
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
    """What `quota` was made for, of a key without QUOTAS. Raises ValueError."""
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
