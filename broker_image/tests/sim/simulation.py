"""Deterministic simulation of replicated partitions: a fleet's pure rules under an event queue, while hosts, disks, links and the store fail.

`Case` is all that a run depends on; `run` carries it out: a fleet comes up and makes its topic, then things break while clients write and
read, then all is healed and the fleet has to come to rest. See docs/internals/simulation.md.
"""

from collections import Counter
from collections.abc import Callable

import msgspec
from logfleet.metadata.image import Partition
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, READY, TOPIC_ID, ReadyValue
from logfleet.metadata.store import Put, Txn
from logfleet.replication.election import first_state
from logfleet.replication.reassignment_steps import is_reassigning
from logfleet.wire import uuids

from broker_image.tests.sim import naming
from broker_image.tests.sim.broker import SimBroker
from broker_image.tests.sim.clients import Consumer
from broker_image.tests.sim.faults import Fault, Faults, drawn_faults, end_ms
from broker_image.tests.sim.kernel import Host, Kernel, SimulationError
from broker_image.tests.sim.node import Fleet, Settings
from broker_image.tests.sim.operating import Operating
from broker_image.tests.sim.producing import IN_FLIGHT_MAX, IdempotentProducer, Producer
from broker_image.tests.sim.tape import Draws, Tape
from broker_image.tests.sim.transactions.load import (
    TransactionLoad,
    drawn_load,
    drawn_style,
    is_drawn,
)
from broker_image.tests.sim.transactions.running import RunningTransactions

SAFETY_MS = 15_000
CONVERGENCE_MS = 120_000
STEP_MS = 250


class Load(msgspec.Struct, frozen=True):
    """A record to be produced."""

    at_ms: int
    partition: int
    is_acks_all: bool


class Case(msgspec.Struct, frozen=True):
    """draws: given ones for all that the lists do not say; None draws them from the seed."""

    seed: int
    settings: Settings
    faults: tuple[Fault, ...]
    load: tuple[Load, ...]
    draws: dict[str, list[int]] | None = None
    transactions: tuple[TransactionLoad, ...] = ()


class Outcome(msgspec.Struct):
    """failure: what went wrong, None if nothing did. drawn: what the tape had."""

    failure: str | None
    labels: Counter[str]
    trace_hash: str
    drawn: Draws
    notes: list[tuple[int, str, str]]
    now_ms: int


def drawn_case(seed: int) -> Case:
    """The case that belongs to a seed."""
    tape = Tape(seed)
    draw = tape.draw
    brokers = 3 + (draw("faults.brokers", 4) == 3) + (draw("faults.brokers", 8) == 7)
    racks = 2 + draw("faults.racks", 2)
    factor = (3, 3, 3, 2, 1)[draw("faults.factor", 5)]
    has_store_faults = draw("store.faulty", 3) > 0
    settings = Settings(
        racks=tuple("abc"[number % racks] for number in range(brokers)),
        partitions=1 + draw("load.partitions", 2),
        replication_factor=factor,
        min_isr=1 + draw("load.min_isr", 2),
        lag_max_ms=(1_000, 2_000, 4_000)[draw("schedule.lag", 3)],
        fetch_batches=(1, 3, 10)[draw("net.batches", 3)],
        is_unclean_enabled=draw("faults.unclean", 10) == 9,
        delay_ms=(1, 4, 30, 120)[draw("net.most", 4)],
        spikes=(0, 0, 1, 3)[draw("net.spikes", 4)],
        unknown=has_store_faults * draw("store.unknown", 20),
        late=has_store_faults * draw("store.late", 25),
        refused=has_store_faults * draw("store.refused", 10),
        dropped=has_store_faults * (0, 5, 15, 40)[draw("drop.percent", 4)],
        tenant=(0, 0, 50)[draw("tenant.is_there", 3)],
    )
    faults = drawn_faults(tape, SAFETY_MS)
    load: list[Load] = []
    for _ in range(10 + draw("load.count", 30)):
        at_ms, partition = draw("load.at", SAFETY_MS), draw("load.partition", settings.partitions)
        is_acks_all = draw("load.acks", 4) < 3
        most = IN_FLIGHT_MAX if is_acks_all and draw("load.flight", 3) == 2 else 1
        burst = 1 + draw("load.burst", most if is_acks_all else 6)
        load += burst * [Load(at_ms, partition, is_acks_all)]
    longer_ms = end_ms(faults, SAFETY_MS) - SAFETY_MS
    load += [
        Load(SAFETY_MS + tape.draw("absence.load", longer_ms), number % settings.partitions, True)
        for number in range(longer_ms // 4_000)
    ]
    load.sort(key=lambda each: each.at_ms)
    case = Case(seed, settings, faults, tuple(load))
    return _with_transactions(case, tape) if is_drawn(tape) else case


def _with_transactions(case: Case, tape: Tape) -> Case:
    """One partition more is their log. It is lost to no unclean election, and its topic is not made again."""
    style, data = drawn_style(tape), case.settings.partitions + tape.draw("txn.partitions", 2)
    settings = msgspec.structs.replace(
        case.settings, partitions=data + 1, coordinator=data, style=style, is_unclean_enabled=False
    )
    return msgspec.structs.replace(
        case,
        settings=settings,
        faults=tuple(each for each in case.faults if each.kind != "create_again"),
        load=case.load[::3],
        transactions=drawn_load(tape, style, data, SAFETY_MS),
    )


class Simulation:
    """A fleet and its clients. `run_case` drives it as a case says; scenarios do it step by step."""

    def __init__(self, case: Case, *, is_told: bool = False) -> None:
        self.case = case
        settings = case.settings
        self.kernel = Kernel(Tape(case.seed, case.draws), is_told=is_told)
        self.fleet = Fleet(self.kernel, settings)
        self.brokers = {
            number: SimBroker(self.fleet, number, rack)
            for number, rack in enumerate(settings.racks, 1)
        }
        self.fleet.checker.brokers = self.brokers
        self.fleet.net.servers = {each.host.name: each for each in self.brokers.values()}
        self.operating = Operating(self.fleet, self.brokers)
        self.faults = Faults(self.fleet, self.brokers, self.operating)
        self.client = Host("client")
        self.producers = {
            (index, kind.is_acks_all): kind(self.fleet, self.client, index)
            for index in range(settings.data_partitions)
            for kind in (IdempotentProducer, Producer)
        }
        self.consumers = [Consumer(self.fleet, index) for index in range(settings.data_partitions)]
        self.transactions = RunningTransactions(self.fleet, self.client, self.brokers)

    def begin(self) -> None:
        """All brokers are active, and the topic is there."""
        store, settings, fleet = self.fleet.store, self.case.settings, self.fleet
        faults, store.faults = store.faults, type(store.faults)()
        for broker in self.brokers.values():
            broker.start()
        self.expect(20_000, lambda: len(self.active()) == len(self.brokers), "the fleet comes up")
        image = store.image
        topic_id = naming.topic_id(0)
        uuid = uuids.to_text(topic_id)
        puts = [
            fleet.topic_put(topic_id, settings.min_isr),
            Put(TOPIC_ID.key(uuids.from_text(uuid)), naming.TOPIC.encode()),
            READY.put(uuids.from_text(uuid), ReadyValue(settings.partitions)),
        ]
        for index, ids in enumerate(fleet.assignment):
            state = first_state(ids, image.brokers, settings.min_isr)
            assert state is not None
            puts.append(PARTITION.put((uuids.from_text(uuid), index), state))
        store.txn(store.host, Txn(success=puts))
        self.expect(20_000, self.has_converged, "the topic comes up")
        for broker in self.brokers.values():
            broker.flush()
        store.faults = faults
        for consumer in self.consumers:
            self.kernel.spawn(self.client, "consume", consumer.consuming(self.client))
        if settings.coordinator >= 0:
            self.expect(20_000, self.transactions.begin, "a coordinator is loaded")

    def expect(self, within_ms: int, holds: Callable[[], bool], what: str) -> None:
        """Go on until it holds, and fail if it does not within that time."""
        until_ms = self.kernel.now + within_ms
        while not holds():
            if self.kernel.now >= until_ms:
                raise SimulationError(f"L1: {within_ms} ms, and still not: {what}; {self.state()}")
            self.kernel.run(min(self.kernel.now + STEP_MS, until_ms))

    def active(self) -> list[int]:
        return [each.id for each in self.fleet.store.image.brokers.values() if each.is_active]

    def state(self) -> str:
        partitions = self.fleet.partitions_in(self.fleet.store.image)
        return f"{self.operating.state()}; {self.transactions.state()}" + "; ".join(
            f"{index}: leader {each.leader}/{each.leader_epoch} isr {each.isr} elr {each.elr}"
            for index, each in enumerate(partitions)
        )

    def is_at_rest(self) -> bool:
        """And nobody is rolled or drained any more."""
        operating = self.operating
        return (operating.is_done or operating.waits_for_the_lost) and self.has_converged()

    def has_converged(self) -> bool:
        """Every partition that can be led is, all its replicas are in sync and hold the same, and nobody waits."""
        image = self.fleet.store.image
        partitions = dict(naming.numbered(image))
        return (
            len(partitions) == self.case.settings.partitions
            and not image.deleted
            and not self.faults.is_making
            and all(self._is_well(index, partitions[index]) for index in partitions)
            and (self.transactions.is_at_rest() or not all(map(_has_leader, partitions.values())))
        )

    def _is_well(self, index: int, partition: Partition) -> bool:
        replicas = [self.brokers[each] for each in partition.replicas]
        if partition.leader == NO_LEADER:
            return self._is_lost(partition)
        if len(partition.isr) < len(replicas) or is_reassigning(partition):
            return False
        at = naming.index_of(index)
        if at != self.case.settings.coordinator and not all(
            self.producers[at, acks].is_idle for acks in (True, False)
        ):
            return False
        led = self.brokers[partition.leader].disk.logs.get(index)
        logs = [each.disk.logs.get(index) for each in replicas]
        return led is not None and all(
            log is not None and log.is_like(led) and log.start_offset >= led.start_offset
            for log in logs
        )

    def _is_lost(self, partition: Partition) -> bool:
        """Whether nobody may lead: only the last leader had what was committed, and its disk has been replaced."""
        last = self.brokers[partition.last_leader]
        return (
            not partition.isr
            and not self.case.settings.is_unclean_enabled
            and set(partition.elr) <= {last.id}
            and last.disk.directory != partition.last_directory
        )


def _has_leader(partition: Partition) -> bool:
    return partition.leader != NO_LEADER


def run(case: Case, *, is_told: bool = False) -> Outcome:
    """Carry a case out from its begin to its rest."""
    simulation = Simulation(case, is_told=is_told)
    kernel, failure = simulation.kernel, None
    try:
        simulation.begin()
        began_ms = kernel.now
        faults_host = simulation.fleet.store.host
        for fault in case.faults:
            kernel.at(fault.at_ms, faults_host, "fault", simulation.faults.begin, fault)
        for load in case.load:
            producer = simulation.producers[load.partition, load.is_acks_all]
            kernel.at(load.at_ms, simulation.client, "load", producer.produce)
        simulation.transactions.run(case.transactions)
        kernel.run(began_ms + end_ms(case.faults, SAFETY_MS))
        kernel.note("world", "*** all is healed")
        simulation.faults.heal()
        simulation.expect(CONVERGENCE_MS, simulation.is_at_rest, "the fleet comes to rest")
        simulation.transactions.rests()
    except AssertionError as error:
        failure = f"{type(error).__name__}: {error}"
    return Outcome(
        failure,
        kernel.labels,
        kernel.trace_hash() if is_told else "",
        kernel.tape.drawn,
        kernel.notes,
        kernel.now,
    )
