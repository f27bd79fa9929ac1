"""A fleet as its brokers report it at one moment: the input of checks. PURE.

None stands for what is not known. A gap says why.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.telemetry.flows import Flow

NO_LEADER = -1


class Part(StrEnum):
    """What is asked in one way, and may be missing as a whole."""

    CONFIGS = "configs"
    OFFSETS = "offsets"
    TIMES = "times"
    GROUPS = "groups"
    DISKS = "disks"
    BROKERS = "brokers"
    FEATURES = "features"
    BATCHES = "batches"
    METRICS = "metrics"
    CLOCKS = "clocks"


class Gap(msgspec.Struct, frozen=True):
    """broker: which one did not report this part; None if nobody did."""

    part: Part
    reason: str
    broker: int | None = None


class BrokerState(StrEnum):
    """UNREGISTERED: it has replicas, and does not run."""

    ACTIVE = "active"
    FENCED = "fenced"
    UNREGISTERED = "unregistered"


class Directory(msgspec.Struct, frozen=True):
    """A log directory. error: why it is not used. Bytes of its disk, None if not reported."""

    path: str
    error: str | None = None
    total: int | None = None
    usable: int | None = None


class Readings(msgspec.Struct, frozen=True):
    """Of a broker's metrics; counters since its start."""

    files_open: float | None = None
    files_max: float | None = None
    records_in: float | None = None
    produce_requests: float | None = None
    late_transactions: float | None = None


class Broker(msgspec.Struct, frozen=True):
    """config: the keys that checks need, as the broker has them.

    apis: what it speaks, by API key the lowest and the highest version. clock_ahead_s: of the clock
    here.
    """

    id: int
    zone: str | None = None
    state: BrokerState = BrokerState.ACTIVE
    config: Mapping[str, str] | None = None
    directories: tuple[Directory, ...] | None = None
    apis: Mapping[int, tuple[int, int]] | None = None
    clock_ahead_s: float | None = None
    readings: Readings | None = None


class Batch(msgspec.Struct, frozen=True):
    """The newest batch of a partition."""

    idempotent: bool
    compressed: bool
    records: int
    size: int


class Partition(msgspec.Struct, frozen=True):
    """begin, end: offsets, the end exclusive. size: bytes of its largest replica.

    newest_ms: when its newest record was written, since 1970; -1 if it has none. hour_old,
    week_old: the first offset that is younger, or the end; only known where a group lags.
    """

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    begin: int | None = None
    end: int | None = None
    newest_ms: int | None = None
    hour_old: int | None = None
    week_old: int | None = None
    size: int | None = None
    batch: Batch | None = None
    flow: Flow | None = None


class Topic(msgspec.Struct, frozen=True):
    """config: the keys that checks need, defaults included. partitions: by index."""

    name: str
    partitions: tuple[Partition, ...]
    internal: bool = False
    config: Mapping[str, str] | None = None

    @property
    def replicas(self) -> int:
        """The smallest number of replicas that a partition has."""
        return min((len(each.replicas) for each in self.partitions), default=0)

    @property
    def min_isr(self) -> int | None:
        """min.insync.replicas, None if not known."""
        return None if self.config is None else int(self.config.get("min.insync.replicas", 1))


class Member(msgspec.Struct, frozen=True):
    """partitions: what it reads, by topic."""

    client_id: str
    host: str
    partitions: Mapping[str, tuple[int, ...]]


class Group(msgspec.Struct, frozen=True):
    """state: in Kafka's spelling. members: None for kinds that are not described.

    committed: offsets by topic and partition; None if not known.
    """

    name: str
    state: str
    members: tuple[Member, ...] | None = ()
    committed: Mapping[tuple[str, int], int] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """brokers: by id, unregistered ones too. topics: by name, internal ones too."""

    cluster_id: str
    now_ms: int
    brokers: tuple[Broker, ...]
    topics: Mapping[str, Topic] = {}
    groups: tuple[Group, ...] = ()
    level: FeatureLevel | None = None
    gaps: tuple[Gap, ...] = ()

    @property
    def active(self) -> list[Broker]:
        return [each for each in self.brokers if each.state is BrokerState.ACTIVE]

    @property
    def zones(self) -> list[str]:
        """Zones of all brokers, sorted."""
        return sorted({each.zone for each in self.brokers if each.zone is not None})

    @property
    def users_topics(self) -> list[Topic]:
        """All but internal topics."""
        return [each for each in self.topics.values() if not each.internal]

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, None if there is none."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def unknown(self, part: Part) -> str | None:
        """Why nobody reported this part; None if somebody did."""
        return next(
            (gap.reason for gap in self.gaps if gap.part is part and gap.broker is None), None
        )
