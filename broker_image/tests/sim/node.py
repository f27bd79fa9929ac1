"""What the parts of a simulated broker share: the world that it stands in, its disk, and what it knows of itself."""

from copy import deepcopy
from typing import Any, Protocol

import msgspec
from logfleet.controller.brokers.vanishing import RecentBrokers
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.kinds.topics import TOPIC, TopicValue
from logfleet.metadata.store import Put
from logfleet.wire import uuids

from broker_image.tests.sim import naming
from broker_image.tests.sim.invariants import Checker
from broker_image.tests.sim.kernel import Host, Kernel
from broker_image.tests.sim.net import SimNet
from broker_image.tests.sim.replica_log import ReplicaLog
from broker_image.tests.sim.store import SimStore
from broker_image.tests.sim.transactions.checking import TransactionChecker
from broker_image.tests.sim.transactions.load import Style

LEASE_TTL_S = 3


class Settings(msgspec.Struct, frozen=True):
    """What a seed draws of a fleet. racks: of the brokers, by id - 1. lag_max_ms: replica.lag.time.max.ms.

    coordinator: the partition that is the log of transactions (`__transaction_state`), the last
    one; -1 if there are none. style: of transactions.
    """

    racks: tuple[str, ...] = ("a", "b", "c")
    partitions: int = 1
    replication_factor: int = 3
    min_isr: int = 2
    lag_max_ms: int = 3_000
    fetch_batches: int = 10
    is_unclean_enabled: bool = False
    delay_ms: int = 1
    spikes: int = 0
    unknown: int = 0
    late: int = 0
    refused: int = 0
    dropped: int = 0
    tenant: int = 0
    coordinator: int = -1
    style: Style | None = None

    @property
    def data_partitions(self) -> int:
        """Those that clients write to."""
        return self.partitions - (self.coordinator >= 0)


class Fleet:
    """The world of one simulation, as its hosts see it."""

    def __init__(self, kernel: Kernel, settings: Settings) -> None:
        self.kernel, self.settings = kernel, settings
        self.net = SimNet(kernel)
        self.store = SimStore(kernel, self.net)
        self.generations = 1  # how often the topic was made
        self.controllers: dict[int, int] = {}  # who believes that it controls -> controller epoch
        self.checker = Checker(kernel, is_unclean_enabled=settings.is_unclean_enabled)
        self.transactions = TransactionChecker(kernel, self.checker, settings.coordinator)
        self.store.on_commit = self.checker.committed_metadata
        self.net.delay_ms, self.net.spikes = settings.delay_ms, settings.spikes
        faults = self.store.faults
        faults.unknown, faults.late = settings.unknown, settings.late
        faults.refused, faults.dropped = settings.refused, settings.dropped
        faults.tenant = settings.tenant

    def topic_configs(self, min_isr: int) -> dict[str, str]:
        return {
            "min.insync.replicas": str(min_isr),
            "unclean.leader.election.enable": str(self.settings.is_unclean_enabled).lower(),
        }

    def topic_put(self, topic_id: bytes, min_isr: int) -> Put:
        """The topic, with its configs."""
        value = TopicValue(uuids.to_text(topic_id), self.topic_configs(min_isr))
        return TOPIC.put(naming.TOPIC, value)

    @property
    def assignment(self) -> list[tuple[int, ...]]:
        """The replicas with which the topic is made, by partition."""
        brokers, factor = len(self.settings.racks), self.settings.replication_factor
        return [
            tuple(1 + (index + number) % brokers for number in range(factor))
            for index in range(self.settings.partitions)
        ]

    def partitions_in(self, image: ClusterImage) -> tuple[Partition, ...]:
        topic = image.topic(naming.TOPIC)
        return topic.partitions if topic else ()


class Disk:
    """What is there after a crash. directory: id of the disk.

    marker, note: the broker epoch that a clean stop and a running broker leave (`log.directories.last_run`).
    epochs: broker epochs of the registrations that used it.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.marker: int | None = None
        self.note: int | None = None
        self.epochs: set[int] = set()
        self.logs: dict[int, ReplicaLog] = {}
        self.high_watermarks: dict[int, int] = {}

    @property
    def last_epoch(self) -> int | None:
        """The broker epoch that it names when the next process begins."""
        return self.note if self.marker is None else self.marker

    def copied(self) -> "Disk":
        """What it is now, on other files: a note of a broker that uses it says nothing of the copy."""
        copy = deepcopy(self)
        copy.note = None
        for log in copy.logs.values():
            log.flush()
        return copy

    def older_than(self, newer: "Disk") -> "Disk":
        """This copy in place of the disk that it was made of: what it lacks of it is lost."""
        self.epochs.clear()
        for index, log in newer.logs.items():
            self.logs.setdefault(index, ReplicaLog()).lack(log)
        return self


class Follows(Protocol):
    """The part of a broker that copies from leaders (`fetching`)."""

    def follow(self, replica: Any) -> None:
        """Copy from the leader that the replica has now, until `unfollow`."""

    def unfollow(self, index: int) -> None: ...


class Coordinates(Protocol):
    """The part of a broker that has to do with transactions (`transactions.room`)."""

    def led(self, replica: Any) -> None:
        """It begins to lead a partition, or goes on to."""

    def lost(self, replica: Any) -> None:
        """It leads a partition no more."""


class Node:
    """epoch: its broker epoch while it is registered, else None. deadline_ms: until then nobody can have seen its lease end.

    extended_ms: until then it may answer past the deadline.
    """

    def __init__(self, fleet: Fleet, number: int, rack: str) -> None:
        self.fleet = fleet
        self.id = number
        self.rack = rack
        self.host = Host(f"b{number}")
        self.host.is_up = False
        self.disk = Disk(f"disk-{number}")
        self.image = ClusterImage()
        self.recent = RecentBrokers()
        self.epoch: int | None = None
        self.deadline_ms = self.extended_ms = -1
        self.fetching: Follows
        self.coordinating: Coordinates | None = None

    @property
    def is_registered(self) -> bool:
        """Whether it is, as far as it knows: the deadline may have passed."""
        return self.epoch is not None

    @property
    def may_answer(self) -> bool:
        """Whether it may answer what rests on leading."""
        until_ms = max(self.deadline_ms, self.extended_ms)
        return self.is_registered and self.fleet.kernel.now < until_ms

    def leads(self, partition: Partition) -> bool:
        """Whether its image gives the partition to this registration."""
        is_member = (self.id, self.epoch) in partition.isr
        return self.is_registered and partition.leader == self.id and is_member

    def note(self, text: str, *arguments: object) -> None:
        self.fleet.kernel.note(self.host.name, text, *arguments)
