"""Brokers: their registrations, the controller's decisions on them, and what outlives them.

Snapshots leave out registrations, which end with their leases, and decisions on them.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.metadata.image_draft import ImageDraft, Part
from logfleet.metadata.kind import LEFT_OUT, NUMBER, Kind, Rows, SnapshotRule, json_of, pair
from logfleet.metadata.store import KeyValue
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids

ACTIVE: Final = "active"
FENCED: Final = "fenced"
DRAINING: Final = "draining"
SINCE_THEN: Final = "what-moved-away-since-the-snapshot"


class Endpoint(msgspec.Struct, frozen=True):
    """A listener's address.

    name: upper case. host: empty for all interfaces. port: 0 for any free one.
    """

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


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


class Broker(msgspec.Struct, frozen=True):
    """A registered broker. epoch: create revision of its registration.

    state: the controller's decision on this registration (FenceValue), empty before there is one.
    offline: by topic id the partitions that it cannot serve. last_epoch: broker epoch of the last
    registration that the controller made active, from the broker's fence; None if there was none.
    """

    id: int
    epoch: BrokerEpoch
    value: BrokerValue
    state: str = ""
    offline: Mapping[bytes, frozenset[int]] = {}
    last_epoch: BrokerEpoch | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may lead, and join ISRs."""
        return self.state == ACTIVE

    @property
    def is_draining(self) -> bool:
        """Whether it is about to stop: other brokers replace it as leader and in ISRs."""
        return self.state == DRAINING

    @property
    def is_new(self) -> bool:
        """Whether the controller has not decided on this registration yet."""
        return not self.state

    @property
    def is_fenced(self) -> bool:
        """Whether it may neither lead nor be in sync: it is new, or the controller fenced it."""
        return self.state not in {ACTIVE, DRAINING}

    @property
    def rack(self) -> str | None:
        return self.value.rack

    def listener(self, name: str) -> Endpoint | None:
        """The broker's address on the listener of that (upper case) name."""
        for listener in self.value.listeners:
            if listener.name == name:
                return listener
        return None


class FenceValue(msgspec.Struct, frozen=True):
    """The controller's decision on a registration: `fenced`, `active` or `draining`.

    A registration with another broker epoch counts as fenced.
    active: it may lead and join ISRs. draining: it is about to stop (Kafka: controlled shutdown).
    It joins no ISR, and stays leader and in sync only where no other broker can replace it.
    """

    broker_epoch: BrokerEpoch = msgspec.field(name="be")
    state: str


class Fence(msgspec.Struct, frozen=True):
    """The controller's newest decision on a broker. revision: of that write."""

    broker_epoch: BrokerEpoch
    state: str
    revision: int


def registration_state(epoch: BrokerEpoch, fence: Fence | None) -> str:
    """The controller's decision on the registration with this epoch; empty before there is one."""
    return fence.state if fence is not None and fence.broker_epoch == epoch else ""


BROKERS: Final = Part[Mapping[int, Broker]]("brokers", {})
FENCES: Final = Part[Mapping[int, Fence]]("fences", {})


class _Registrations:
    """A broker has the state that its fence gives its present registration."""

    def put(self, draft: ImageDraft, broker_id: int, value: BrokerValue, item: KeyValue, /) -> None:
        offline = {
            uuids.from_text(uuid): frozenset(indexes) for uuid, indexes in value.offline.items()
        }
        epoch = BrokerEpoch(item.create_revision)
        broker = Broker(broker_id, epoch, value, offline=offline)
        fence = draft.get(FENCES).get(broker_id)
        draft.own(BROKERS)[broker_id] = _with_fence(broker, fence)

    def remove(self, draft: ImageDraft, broker_id: int, /) -> None:
        draft.own(BROKERS).pop(broker_id, None)


class _Fences:
    """A fence also changes the state of its broker."""

    def put(self, draft: ImageDraft, broker_id: int, value: FenceValue, item: KeyValue, /) -> None:
        fence = Fence(value.broker_epoch, value.state, item.mod_revision)
        draft.own(FENCES)[broker_id] = fence
        self._decide(draft, broker_id, fence)

    def remove(self, draft: ImageDraft, broker_id: int, /) -> None:
        draft.own(FENCES).pop(broker_id, None)
        self._decide(draft, broker_id, None)

    def _decide(self, draft: ImageDraft, broker_id: int, fence: Fence | None) -> None:
        broker = draft.get(BROKERS).get(broker_id)
        if broker is not None:
            draft.own(BROKERS)[broker_id] = _with_fence(broker, fence)


def _with_fence(broker: Broker, fence: Fence | None) -> Broker:
    return msgspec.structs.replace(
        broker,
        state=registration_state(broker.epoch, fence),
        last_epoch=None if fence is None else fence.broker_epoch,
    )


BROKER: Final[Kind[int, BrokerValue]] = Kind(
    "broker/ID",
    NUMBER,
    json_of(BrokerValue),
    image=_Registrations(),
    notifies="brokers",
    snapshot=LEFT_OUT,
)
"""Written by the broker, on its lease, again and again. Its create revision is the broker epoch."""

FENCE: Final[Kind[int, FenceValue]] = Kind(
    "fence/ID",
    NUMBER,
    json_of(FenceValue),
    image=_Fences(),
    notifies="brokers",
    snapshot=LEFT_OUT,
)
"""Written by the controller."""


class SuspectValue(msgspec.Struct, frozen=True):
    """The registration whose process now refuses REPORTER's connections."""

    broker_epoch: BrokerEpoch = msgspec.field(name="be")


def _suspected_epoch(_key: tuple[int, int], value: SuspectValue, _item: KeyValue) -> int:
    return value.broker_epoch


SUSPECT: Final[Kind[tuple[int, int], SuspectValue]] = Kind(
    "suspect/ID/REPORTER",
    pair(NUMBER, NUMBER),
    json_of(SuspectValue),
    image=Rows(Part[Mapping[tuple[int, int], int]]("suspects", {}), _suspected_epoch),
    notifies="brokers",
    snapshot=LEFT_OUT,
)
"""Written by broker REPORTER, on its own lease, if it cannot connect to broker ID any more."""


def suspects_of(broker_id: int) -> str:
    """Prefix of all suspect keys of a broker."""
    return f"{SUSPECT.prefix}{broker_id}/"


class DirectoriesValue(msgspec.Struct, frozen=True):
    """The log directories that may hold logs of a broker: `directory.id` of each (KIP-858).

    A directory that could not be read when the record was first written stands by its path instead.
    """

    ids: tuple[str, ...]


class Directories(msgspec.Struct, frozen=True):
    """Log directories that may hold logs of a broker (DirectoriesValue).

    revision: of the last write.
    """

    ids: frozenset[str]
    revision: int


def _directories(_broker_id: int, value: DirectoriesValue, item: KeyValue) -> Directories:
    return Directories(frozenset(value.ids), item.mod_revision)


def _with_a_missing_one(value: DirectoriesValue) -> DirectoriesValue:
    """The value to restore: it names a log directory that does not exist (SINCE_THEN).

    If a replica's log moved to another broker after the snapshot, its former broker then reports
    that it lacks the log (`replication.missing_directories`). It must not create an empty one,
    which might be elected in place of the log that holds the acknowledged records.
    """
    return DirectoriesValue((*value.ids, SINCE_THEN))


DIRECTORIES: Final = Kind(
    "dirs/ID",
    NUMBER,
    json_of(DirectoriesValue),
    image=Rows(Part[Mapping[int, Directories]]("directories", {}), _directories),
    snapshot=SnapshotRule(restored=_with_a_missing_one),
)
"""Written by the broker, before it makes a log there. It stays when the broker is gone."""
