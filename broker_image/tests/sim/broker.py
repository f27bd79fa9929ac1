"""A broker of a simulated fleet: its process from start to stop, its registration, and which part it has in each partition by its image.

What it decides is decided by the product's code (`logfleet.replication`, `logfleet.controller`); this is the shell around it, without sockets and files.
"""

from collections.abc import Callable
from typing import Any

from logfleet.controller.brokers import leaving
from logfleet.controller.brokers.vanishing import RecentBrokers
from logfleet.controller.changes.topics import confirm_deleted
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.kinds.brokers import BrokerValue
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.node.cluster.registration.events import ImageSeen, LeaveAsked, ValueChanged
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids

from broker_image.tests.sim import naming
from broker_image.tests.sim.controlling import Controlling
from broker_image.tests.sim.failsafe import Failsafe
from broker_image.tests.sim.fetching import Fetching
from broker_image.tests.sim.kernel import Process
from broker_image.tests.sim.leading import Leading
from broker_image.tests.sim.messages import (
    Fetch,
    IsStoreSilent,
    Led,
    LogEnds,
    Metadata,
    Produce,
    Range,
    Read,
)
from broker_image.tests.sim.net import Reply
from broker_image.tests.sim.node import Disk, Node
from broker_image.tests.sim.registering import Registering
from broker_image.tests.sim.replica_log import ReplicaLog
from broker_image.tests.sim.transactions.room import Transactions

FLUSH_MS = 1_000
LEAVING_MS_MAX = 10_000
AWAY_MS = 1_000


class SimBroker(Node):
    """previous_epoch: of its last registration that was active, None while its disk names none.

    is_gone: it is not started again.
    """

    is_gone = False

    @property
    def is_unclean(self) -> bool:
        """Whether its disk may lack what it acknowledged before this start."""
        return self.previous_epoch is None

    def start(self) -> None:
        """A process begins, with nothing but what the disk holds."""
        kernel, disk = self.fleet.kernel, self.disk
        was_killed = disk.marker is None
        self.host.is_up = True
        self.is_leaving = self.has_disk_failed = False
        self.epoch = None
        self.deadline_ms = self.extended_ms = -1
        self.image = ClusterImage()
        self.recent = RecentBrokers()
        self.previous_epoch = disk.note = disk.last_epoch
        disk.marker = None
        self.registering = Registering(self, self, self._value())
        self.leading = Leading(self)
        has_transactions = self.fleet.settings.coordinator >= 0
        self.transactions = Transactions(self, self.leading) if has_transactions else None
        self.coordinating = self.transactions
        self.fetching = Fetching(self)
        self.controlling = Controlling(self)
        self.failsafe = Failsafe(self, self.leading)
        for index, log in disk.logs.items():
            self.leading.add(index, log, disk.high_watermarks.get(index, 0))
        self.note("starts%s", " after an unclean stop" if self.is_unclean else "")
        if was_killed and not self.is_unclean:
            kernel.sometimes("a killed process was believed")
        self.fleet.store.watch(self.host, self.on_image)
        self.registering.start()
        kernel.spawn(self.host, "flush", self._flushing())
        kernel.at(0, self.host, "isr", self.leading.isr.step)
        kernel.spawn(self.host, "failsafe", self.failsafe.checking())

    def die(self) -> None:
        """The process is gone, and with it all but the disk."""
        self.fleet.kernel.kill(self.host)
        self.fleet.net.forget(self.host.name)
        self.fleet.controllers.pop(self.id, None)
        self.epoch = None
        for log in self.disk.logs.values():
            log.open()

    def new_disk(self) -> None:
        """All logs are gone, and the disk that takes their place is another one."""
        self.disk = Disk(self.disk.directory + "'")

    def restart(self) -> None:
        """Nobody knows it any more; its next process has an empty disk, and nothing was lost with the old one."""
        self.disk = Disk(self.disk.directory + "+")

    def fail_disk(self) -> None:
        """It is not used again before a restart; the broker stays, and says so (KIP-112)."""
        self.has_disk_failed, self.disk.note = True, None
        self.leading.stop_all()
        self._update_offline()

    # registration

    def registered(self, epoch: BrokerEpoch, deadline_ms: int) -> None:
        self.epoch = int(epoch)
        self.disk.epochs.add(self.epoch)
        self.deadline_ms, self.extended_ms = deadline_ms, -1
        self.fleet.kernel.at(0, self.host, "apply", self.apply)

    def lost(self, reason: str) -> None:
        """It leads nothing until it is registered again."""
        self.fleet.kernel.sometimes(f"a registration was lost: {reason}")
        self.epoch = None
        self.apply()

    def active(self, epoch: BrokerEpoch) -> None:
        """What its disk lacked before no longer counts."""
        self.previous_epoch = int(epoch)
        kernel = self.fleet.kernel
        kernel.at(kernel.draw("disk.note", 50), self.host, "note", self._note_life, int(epoch))

    def fail(self, error: Exception) -> None:
        """Its process ends by itself, and is started again."""
        self.note("ends: %s", error)
        self.fleet.kernel.sometimes(f"a broker ended by itself: {type(error).__name__}")
        self.fleet.net.break_connections(self.host.name)
        self.die()
        self.start_in(AWAY_MS)

    def _value(self) -> BrokerValue:
        return BrokerValue(
            f"{self.host.name}-{self.host.life}",
            (),
            self.rack,
            (self.disk.directory,),
            unclean=self.is_unclean,
            previous_epoch=BrokerEpoch(-1)
            if self.previous_epoch is None
            else BrokerEpoch(self.previous_epoch),
            since_ms=self.fleet.kernel.wall_ms
            if self.host.life > 1
            else 0,  # all have run for long
        )

    def _update_offline(self) -> None:
        offline = self._offline()
        if offline != self.registering.machine.value.offline:
            self.registering.step(ValueChanged({"offline": offline}))

    def _offline(self) -> dict[str, tuple[int, ...]]:
        topic = self.image.topic(naming.TOPIC)
        if topic is None or not self.has_disk_failed:
            return {}
        return {uuids.to_text(topic.id): tuple(range(len(topic.partitions)))}

    # what it follows

    def on_image(self, image: ClusterImage) -> None:
        assert image.revision > self.image.revision, "I23: images only grow"
        if image.brokers is not self.image.brokers:
            self.recent.record(image.brokers, self.fleet.kernel.now)
        self.image = image
        self.registering.step(ImageSeen(image))
        self._update_offline()
        self.leading.isr.step()
        self.apply()
        self.controlling.on_image()
        if self.transactions is not None:
            self.transactions.on_image()

    def _note_life(self, epoch: int) -> None:
        if not self.has_disk_failed:
            self.disk.note = epoch

    def apply(self) -> None:
        """Take the part in each partition that the image gives this registration."""
        shown = set()
        for index, partition in naming.numbered(self.image):
            shown.add(index)
            if self.id in partition.replicas:
                self._apply(index, partition)
            elif index in self.leading.replicas:
                self._let_go(index)
        if self.image.revision:
            for index in self.leading.replicas.keys() - shown:  # of a topic that is gone
                self.leading.replicas.pop(index).stop()
        self._delete()

    def _delete(self) -> None:
        """The logs of deleted topics go, and the store hears of it (`Deletions`)."""
        for deleted in self.image.deleted.values():
            if self.id in deleted.brokers and not self.has_disk_failed:
                for index in [
                    each for each in self.disk.logs if naming.topic_of(each) == deleted.id
                ]:
                    del self.disk.logs[index]
                    self.disk.high_watermarks.pop(index, None)
                self.fleet.kernel.sometimes("the logs of a deleted topic went")
                store, confirmed = self.fleet.store, confirm_deleted(deleted, self.id)
                self.fleet.kernel.spawn(self.host, "deleted", store.settle(self.host, confirmed))

    def _let_go(self, index: int) -> None:
        """The partition has been moved to others: its log goes, or is set aside after a start."""
        self.leading.replicas.pop(index).stop()
        self.disk.logs.pop(index, None)
        self.disk.high_watermarks.pop(index, None)
        self.fleet.kernel.sometimes("a log went whose partition had been moved away")

    def _apply(self, index: int, partition: Partition) -> None:
        replica = self.leading.replicas.get(index)
        if replica is None:
            log = self.disk.logs[index] = ReplicaLog()
            replica = self.leading.add(index, log, 0)
        if partition.leader_epoch < replica.leader_epoch:
            return
        is_newer = self.epoch is not None and self.image.revision >= self.epoch
        is_here = self.is_registered and not self.has_disk_failed
        if not is_here or not is_newer or not partition.has_leader:
            replica.stop()
        elif partition.leader != self.id:
            replica.follow(partition.leader, partition.leader_epoch)
        elif (self.id, self.epoch) in partition.isr:
            replica.lead(partition)
        else:
            replica.stop()

    # what it is asked

    def serve(self, sender: str, request: Any, reply: Reply) -> None:
        if isinstance(request, IsStoreSilent):
            reply(self.failsafe.confirms(request))
            return
        reply = self._while_it_may(reply)
        match request:
            case Fetch():
                self.leading.fetch(request, reply)
            case Produce(part=None):
                self.leading.produce(request, reply)
            case Read():
                self.leading.read(request, reply)
            case LogEnds(indexes):  # a process makes its replicas once it is registered
                replicas = {} if self.epoch is None else self.leading.replicas
                unled = [
                    each for each in indexes if each in replicas and replicas[each].has_no_role
                ]
                reply({each: replicas[each].log.reach for each in unled})
            case Range():
                self.leading.range(request, reply)
            case Metadata(index):
                partition = naming.named(self.image, index)
                known = dict(naming.numbered(self.image)).get(partition)
                reply(Led(known.leader, known.leader_epoch, partition) if known else Led(NO_LEADER))
            case _:
                assert self.transactions is not None, f"{sender} asks for {request}"
                self.transactions.serve(request, reply)

    def _while_it_may(self, reply: Reply) -> Reply:
        """What is ready too late is not sent (`node.dispatch.answered_at`)."""

        def answer(value: Any) -> None:
            if self.epoch is None or self.may_answer:
                reply(value)

        return answer

    # how it stops

    def leave(self, away_ms: int, stopped: Callable[[], None] = lambda: None) -> None:
        """Stop in good order: hand over what it leads, then stop cleanly, safe or not. It starts again after that time.

        stopped: called when its process has ended.
        """
        if self.host.is_up and not self.is_leaving:
            self.note("is told to leave")
            self.is_leaving = True
            self._away_ms, self._stopped = away_ms, stopped
            self.registering.step(LeaveAsked(LEAVING_MS_MAX))

    def stop(self) -> None:
        """It has left: stop cleanly."""
        if self._may_leave():
            self.fleet.kernel.sometimes("a broker left when nothing needed it any more")
        self.leading.stop_all()
        self.flush()
        self.disk.marker = None if self.has_disk_failed else self.previous_epoch
        self.note("stops cleanly")
        self.registering.stop()
        self.fleet.net.break_connections(self.host.name)
        self.die()
        self._stopped()
        self.start_in(self._away_ms)

    def start_in(self, ms: int) -> None:
        self.fleet.kernel.at(ms, self.fleet.store.host, "start", self.start_if_down)

    def start_if_down(self) -> None:
        if not self.host.is_up and not self.is_gone:
            self.start()

    def _may_leave(self) -> bool:
        broker = self.image.brokers.get(self.id)
        is_me = broker is not None and broker.epoch == self.epoch
        return is_me and leaving.may_exit(self.image, self.id)

    def _flushing(self) -> Process:
        while True:
            yield FLUSH_MS
            self.flush()

    def flush(self) -> None:
        for index, replica in self.leading.replicas.items():
            if self.has_disk_failed:
                return
            replica.log.flush()
            self.disk.high_watermarks[index] = replica.high_watermark
