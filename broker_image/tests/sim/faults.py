"""What breaks in a simulation: a list of faults, drawn before it begins, so that shrinking can leave some out."""

from collections.abc import Callable

import msgspec
from logfleet.controller.brokers.stop_check import check_stop
from logfleet.metadata.kinds.brokers import BROKER, FENCE, FENCED, FenceValue
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.kinds.topics import TOPIC_ID
from logfleet.metadata.store import Txn, created_at, exists

from broker_image.tests.sim import naming
from broker_image.tests.sim.broker import SimBroker
from broker_image.tests.sim.kernel import Process
from broker_image.tests.sim.node import Disk, Fleet
from broker_image.tests.sim.operating import Operating
from broker_image.tests.sim.tape import Tape


class Fault(msgspec.Struct, frozen=True):
    """target: an index; broker ids come from it, odd ones mean whoever leads partition 0 then, 0 the controller. ms: how long it lasts."""

    at_ms: int
    kind: str
    target: int
    ms: int


class Faults:
    """Carries faults out, and undoes what is left of them."""

    def __init__(self, fleet: Fleet, brokers: dict[int, SimBroker], operating: Operating) -> None:
        self._fleet, self._brokers, self._operating = fleet, brokers, operating
        self._cuts: list[tuple[str, str]] = []
        self.is_making = False

    def begin(self, fault: Fault) -> None:
        target = self._target(fault.target)
        self._fleet.kernel.note(target.host.name, "*** %s for %s ms", fault.kind, fault.ms)
        ACTS[fault.kind](self, target, fault.ms)

    def heal(self) -> None:
        """Whatever is broken is well, for good."""
        for source, target in self._cuts:
            self._fleet.net.unblock(source, target)
        self._cuts = []
        for broker in self._brokers.values():
            self._fleet.kernel.resume(broker.host)
            self._fleet.store.hold_watch(broker.host, is_held=False)
            if broker.host.is_up and broker.has_disk_failed:
                self.kill(broker, 0)
            else:
                broker.start_if_down()
        self._operating.start()
        store, net = self._fleet.store, self._fleet.net
        store.faults.unknown = store.faults.late = store.faults.refused = net.spikes = 0
        store.faults.dropped = 0
        store.poke()

    def _target(self, number: int) -> SimBroker:
        image = self._fleet.store.image
        if number == 0 and image.controller is not None:
            return self._brokers[image.controller.broker]
        if number % 2:
            partitions = self._fleet.partitions_in(image)
            if partitions and partitions[0].has_leader:
                return self._brokers[partitions[0].leader]
        return self._brokers[1 + number // 2 % len(self._brokers)]

    def kill(self, target: SimBroker, ms: int) -> None:
        """The process dies; what it wrote stays in the page cache."""
        if target.host.is_up:
            target.die()
            self._fleet.net.break_connections(target.host.name)
            target.start_in(ms)

    def power(self, target: SimBroker, ms: int) -> None:
        """The machine stops; nobody is told, and what was not flushed is lost, or a part of it."""
        if target.host.is_up:
            target.die()
            target.disk.note = None
            for log in target.disk.logs.values():
                log.lose_power(self._fleet.kernel.draw("faults.kept", 6))
            target.start_in(ms)

    def bounce(self, target: SimBroker, ms: int) -> None:
        """Power loss, and whoever restarts it ends its lease: it is back before it was taken out, and before all that it sent has arrived."""
        self._cut([(target.host.name, each.host.name) for each in self._others(target)], 2_000)

        def lose() -> None:
            if target.host.is_up:
                self.power(target, ms // 20)
                self.end_lease(target, ms)

        self._fleet.kernel.at(600, self._fleet.store.host, "bounce", lose)

    def new_disk(self, target: SimBroker, ms: int) -> None:
        if target.host.is_up:
            target.die()
            target.new_disk()
            self._fleet.net.break_connections(target.host.name)
            target.start_in(ms)

    def old_disk(self, target: SimBroker, ms: int) -> None:
        """Its disk is copied, after a stop in order or while it runs, and replaced by the copy later."""
        copies: list[Disk] = []

        def keep() -> None:
            copies.append(target.disk.copied())

        def replace() -> None:
            if copies and target.host.is_up and target.disk.directory == copies[0].directory:
                target.die()
                self._fleet.net.break_connections(target.host.name)
                target.disk = copies[0].older_than(target.disk)
                self._fleet.kernel.sometimes("a disk was replaced by an older copy")
                target.start_in(100)

        if ms % 2:
            target.leave(100, keep)
        else:
            keep()
        self._fleet.kernel.at(ms, self._fleet.store.host, "old disk", replace)

    def fail_disk(self, target: SimBroker, ms: int) -> None:
        """The log directory fails, the broker goes on without; later it is restarted, and the disk is as it was."""
        if target.host.is_up:
            kernel, life = self._fleet.kernel, target.host.life
            target.fail_disk()

            def restart() -> None:
                if target.host.life == life:
                    self.kill(target, 100)

            kernel.at(ms, self._fleet.store.host, "restart", restart)

    def set_min_isr(self, _target: SimBroker, ms: int) -> None:
        """min.insync.replicas of the topic is another one (KAFKA-16540), by a write of whoever controls."""
        store, topic = self._fleet.store, self._fleet.store.image.topic(naming.TOPIC)
        if topic is not None:
            put = self._fleet.topic_put(topic.id, 1 + ms % 2)
            is_there = exists(TOPIC_ID.key(topic.id))
            store.txn(store.host, Txn((is_there,), (put,)))

    def stop_if_allowed(self, target: SimBroker, ms: int) -> None:
        """The controller is asked whether a broker, two of them or a zone may stop; they are killed together if it says yes."""
        controllers, kernel = self._fleet.controllers, self._fleet.kernel
        if not controllers:
            return
        image = self._brokers[max(controllers, key=controllers.__getitem__)].image
        next_to = self._brokers[1 + target.id % len(self._brokers)]
        zone = [each for each in self._brokers.values() if each.rack == target.rack]
        asked = ([target], [target], [target, next_to], zone)[ms % 4]
        going_down = {each.id for each in asked}
        if check_stop(image, going_down).is_yes:
            kernel.sometimes("may-i said yes")
            self._fleet.checker.allowed(image, going_down)
            for each in asked:
                self.kill(each, ms)
        else:
            kernel.sometimes("may-i said no")

    def reassign(self, target: SimBroker, ms: int) -> None:
        """Somebody asks the controller to move a partition, or to cancel what is under way (KIP-455)."""
        controllers, count = self._fleet.controllers, len(self._brokers)
        if not controllers:
            return
        step, factor = 1 + ms % 2, 1 + ms // 7 % 3
        ids = [1 + (target.id + number * step) % count for number in range(factor)]
        wanted = None if ms % 5 == 0 else tuple(dict.fromkeys(ids))
        controller = self._brokers[max(controllers, key=controllers.__getitem__)]
        controller.controlling.reassign(ms % self._fleet.settings.partitions, wanted)

    def delete_records(self, target: SimBroker, ms: int) -> None:
        """A client has the leader delete records, or retention deletes some of a follower's."""
        index = naming.named(target.image, ms % self._fleet.settings.partitions)
        replica = target.leading.replicas.get(index)
        is_state = index == self._fleet.settings.coordinator
        if replica is None or is_state or not target.host.is_up or not target.is_registered:
            return
        start = replica.log.start_offset
        offset = start + (replica.high_watermark - start) * (1 + ms % 4) // 4
        if replica.leading is not None:
            target.leading.delete_records(replica.index, offset)
        else:
            replica.delete_before(offset)

    def create_again(self, _target: SimBroker, _ms: int) -> None:
        """Somebody deletes the topic, and makes another one of that name on the same brokers."""
        if not self.is_making:
            self.is_making = True
            self._fleet.kernel.spawn(self._fleet.store.host, "create again", self._creating_again())

    def _creating_again(self) -> Process:
        fleet = self._fleet
        made = naming.topic_id(fleet.generations)
        while (topic := fleet.store.image.topic(naming.TOPIC)) is None or topic.id != made:
            if fleet.controllers:
                controller = max(fleet.controllers, key=fleet.controllers.__getitem__)
                self._brokers[controller].controlling.create_again(made)
            yield ANEW_MS
        fleet.generations += 1
        self.is_making = False

    def roll(self, _target: SimBroker, _ms: int) -> None:
        self._operating.roll()

    def drain(self, target: SimBroker, _ms: int) -> None:
        self._operating.drain(target.id)

    def kill_operator(self, _target: SimBroker, ms: int) -> None:
        self._operating.die(ms)

    def leave(self, target: SimBroker, ms: int) -> None:
        target.leave(ms)

    def pause(self, target: SimBroker, ms: int) -> None:
        if target.host.is_up and not target.host.is_paused:
            kernel, life = self._fleet.kernel, target.host.life
            kernel.pause(target.host)

            def resume() -> None:
                if target.host.life == life and target.host.is_paused:
                    kernel.resume(target.host)

            kernel.at(ms, self._fleet.store.host, "resume", resume)

    def isolate(self, target: SimBroker, ms: int) -> None:
        name = target.host.name
        others = ["store", "client", *(each.host.name for each in self._others(target))]
        self._cut([(name, each) for each in others] + [(each, name) for each in others], ms)

    def cut_peers(self, target: SimBroker, ms: int) -> None:
        name = target.host.name
        others = [each.host.name for each in self._others(target)]
        self._cut([(name, each) for each in others] + [(each, name) for each in others], ms)

    def cut_store(self, target: SimBroker, ms: int) -> None:
        name = target.host.name
        self._cut([(name, "store"), ("store", name)], ms)

    def blind(self, target: SimBroker, ms: int) -> None:
        """Its watch shows nothing new; all else goes on."""
        store = self._fleet.store
        store.hold_watch(target.host)

        def end() -> None:
            store.hold_watch(target.host, is_held=False)

        self._fleet.kernel.at(ms, store.host, "see", end)

    def suspect(self, target: SimBroker, ms: int) -> None:
        """The controller fences a broker that is alive (`fencing.suspect_step`), which sees it late."""
        store = self._fleet.store
        broker = store.image.brokers.get(target.id)
        if broker is not None and not broker.is_fenced:
            self.blind(target, ms)
            key = BROKER.key(target.id)
            put = FENCE.put(target.id, FenceValue(broker.epoch, FENCED))
            store.txn(store.host, Txn((created_at(key, broker.epoch),), (put,)))

    def deafen(self, target: SimBroker, ms: int) -> None:
        """What it sends arrives, it hears nothing."""
        others = ["store", *(each.host.name for each in self._others(target))]
        self._cut([(each, target.host.name) for each in others], ms)

    def mute(self, target: SimBroker, ms: int) -> None:
        others = ["store", *(each.host.name for each in self._others(target))]
        self._cut([(target.host.name, each) for each in others], ms)

    def reset(self, target: SimBroker, _ms: int) -> None:
        self._fleet.net.break_connections(target.host.name)

    def outage(self, _target: SimBroker, ms: int) -> None:
        if not self._fleet.store.is_out:
            self._fleet.store.outage(ms)

    def end_leases(self, _target: SimBroker, ms: int) -> None:
        """The store elects a leader of its own, and all leases have ended after that."""
        if not self._fleet.store.is_out:
            self._fleet.kernel.sometimes("all leases ended at once")
            self._fleet.store.outage(ms % 1_000, ends_leases=True)

    def absence(self, target: SimBroker, ms: int) -> None:
        """The store is away for minutes, or for one broker only."""
        if ms % 3:
            self._fleet.kernel.sometimes("the store was away for minutes")
            self.outage(target, ms)
        else:
            self._fleet.kernel.sometimes("a broker was without the store for minutes")
            self.cut_store(target, ms)

    def compact(self, _target: SimBroker, _ms: int) -> None:
        self._fleet.store.compact()

    def end_lease(self, target: SimBroker, _ms: int) -> None:
        """Somebody revokes it; the broker may hear of that late."""
        store = self._fleet.store
        held = store.state.items.get(BROKER.key(target.id))
        if held is not None:
            store.revoke(store.host, held.lease)

    def depose(self, _target: SimBroker, _ms: int) -> None:
        """The controller's key is deleted; the controller may go on believing."""
        store = self._fleet.store
        store.txn(store.host, Txn(success=(CONTROLLER.delete(None),)))

    def _others(self, target: SimBroker) -> list[SimBroker]:
        return [each for each in self._brokers.values() if each is not target]

    def _cut(self, links: list[tuple[str, str]], ms: int) -> None:
        for link in links:
            self._fleet.net.block(*link)
        self._cuts += links

        def end() -> None:
            for link in links:
                if link in self._cuts:
                    self._cuts.remove(link)
                    self._fleet.net.unblock(*link)
            self._fleet.store.poke()

        self._fleet.kernel.at(ms, self._fleet.store.host, "heal", end)


KINDS: dict[str, Callable[[Faults, SimBroker, int], None]] = {
    "kill": Faults.kill,
    "power": Faults.power,
    "bounce": Faults.bounce,
    "new_disk": Faults.new_disk,
    "fail_disk": Faults.fail_disk,
    "set_min_isr": Faults.set_min_isr,
    "leave": Faults.leave,
    "pause": Faults.pause,
    "isolate": Faults.isolate,
    "cut_peers": Faults.cut_peers,
    "cut_store": Faults.cut_store,
    "blind": Faults.blind,
    "suspect": Faults.suspect,
    "deafen": Faults.deafen,
    "mute": Faults.mute,
    "reset": Faults.reset,
    "outage": Faults.outage,
    "end_leases": Faults.end_leases,
    "compact": Faults.compact,
    "end_lease": Faults.end_lease,
    "depose": Faults.depose,
}
ACTS = {
    **KINDS,
    "absence": Faults.absence,
    "delete_records": Faults.delete_records,
    "create_again": Faults.create_again,
    "stop_if_allowed": Faults.stop_if_allowed,
    "reassign": Faults.reassign,
    "old_disk": Faults.old_disk,
    "roll": Faults.roll,
    "drain": Faults.drain,
    "kill_operator": Faults.kill_operator,
}
"""Also those that are drawn beside the faults of a seed, from a stream of their own."""


ANEW_MS = 700
MEANWHILE = ("kill", "pause", "cut_peers", "isolate", "reset", "cut_store")
"""What fails while the store is away for minutes."""


def drawn_faults(tape: Tape, until_ms: int) -> tuple[Fault, ...]:
    """Some kinds only, chosen for this seed, so that each of them meets itself and few others (swarm testing)."""
    kinds = [kind for kind in KINDS if tape.draw("faults.kind", 5) >= 3] or ["kill"]
    faults = [
        Fault(
            tape.draw("faults.at", until_ms),
            kinds[tape.draw("faults.which", len(kinds))],
            tape.draw("faults.target", 12),
            (200, 1_000, 2_500, 5_000, 9_000)[tape.draw("faults.long", 5)]
            + tape.draw("faults.ms", 1_000),
        )
        for _ in range(1 + tape.draw("faults.count", 8))
    ]
    faults += _questions(tape, until_ms)
    faults += _moves(tape, until_ms)
    faults += _old_disks(tape, until_ms)
    faults += _operation(tape, until_ms)
    faults += _deletions(tape, until_ms)
    if tape.draw("anew.is_drawn", 6) == 5:
        faults += [
            Fault(tape.draw("anew.at", until_ms), "create_again", 0, 0)
            for _ in range(1 + tape.draw("anew.count", 2))
        ]
    faults += _absences(tape, until_ms)
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _questions(tape: Tape, until_ms: int) -> list[Fault]:
    if tape.draw("ask.is_silent", 3):
        return []
    return [
        Fault(
            tape.draw("ask.at", until_ms),
            "stop_if_allowed",
            tape.draw("ask.target", 12),
            3_500 + tape.draw("ask.ms", 5_000),
        )
        for _ in range(1 + tape.draw("ask.count", 2))
    ]


def _moves(tape: Tape, until_ms: int) -> list[Fault]:
    if tape.draw("move.is_drawn", 3) != 2:
        return []
    return [
        Fault(
            tape.draw("move.at", until_ms),
            "reassign",
            tape.draw("move.target", 12),
            tape.draw("move.ms", 1_000),
        )
        for _ in range(1 + tape.draw("move.count", 4))
    ]


def _old_disks(tape: Tape, until_ms: int) -> list[Fault]:
    if tape.draw("old.is_drawn", 3) != 2:
        return []
    return [
        Fault(
            tape.draw("old.at", until_ms),
            "old_disk",
            tape.draw("old.target", 12),
            1_000 + tape.draw("old.ms", 7_000),
        )
        for _ in range(1 + tape.draw("old.count", 3))
    ]


def _operation(tape: Tape, until_ms: int) -> list[Fault]:
    if tape.draw("operate.is_drawn", 3) != 2:
        return []
    begun = ("roll", "drain")[tape.draw("operate.first", 2)]
    others = [
        ("kill_operator", "roll", "drain")[tape.draw("operate.which", 3)]
        for _ in range(tape.draw("operate.count", 3))
    ]
    return [
        Fault(
            tape.draw("operate.at", until_ms),
            kind,
            tape.draw("operate.target", 12),
            500 + tape.draw("operate.ms", 4_000),
        )
        for kind in (begun, *others)
    ]


def _deletions(tape: Tape, until_ms: int) -> list[Fault]:
    if tape.draw("delete.is_drawn", 3) != 2:
        return []
    return [
        Fault(
            tape.draw("delete.at", until_ms),
            "delete_records",
            tape.draw("delete.target", 12),
            tape.draw("delete.ms", 1_000),
        )
        for _ in range(1 + tape.draw("delete.count", 5))
    ]


def _absences(tape: Tape, until_ms: int) -> list[Fault]:
    """The store is away for one to three minutes, from one broker or from all, and more fails then."""
    if tape.draw("absence.is_drawn", 30) != 29:
        return []
    at_ms, ms = tape.draw("absence.at", until_ms), 60_000 + tape.draw("absence.ms", 120_000)
    absence = Fault(at_ms, "absence", tape.draw("absence.target", 12), ms)
    return [absence] + [
        Fault(
            at_ms + tape.draw("absence.when", ms),
            MEANWHILE[tape.draw("absence.which", len(MEANWHILE))],
            tape.draw("absence.target", 12),
            1_000 + tape.draw("absence.long", 20_000),
        )
        for _ in range(tape.draw("absence.count", 4))
    ]


def end_ms(faults: tuple[Fault, ...], at_least_ms: int) -> int:
    """When a run heals what is broken: after the absence of the store, if there is one."""
    ends = [each.at_ms + each.ms + 3_000 for each in faults if each.kind == "absence"]
    return max(at_least_ms, *ends) if ends else at_least_ms
