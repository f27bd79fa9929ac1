"""The metadata store of a simulated fleet: the contract of `logfleet.metadata.store`, with everything that etcd does to its clients.

`StoreState` is the store itself, one step at a time. `SimStore` stands in the simulated world: answers
that are late or lost, proposals that are committed after their client gave up, watches that lag and
coalesce, compaction, and times without quorum, after which each lease is as new, or all have ended.
Another tenant may write below a prefix of its own: that moves the revision, and no watch shows it.
"""

from collections.abc import Callable, Sequence

import msgspec
from logfleet.metadata.attempts import Attempts, Unanswered
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.store import (
    Compare,
    Delete,
    Deleted,
    DeletePrefix,
    Event,
    Get,
    KeyValue,
    LeaseNotFound,
    Operation,
    Put,
    Snapshot,
    StoreError,
    StoreUnavailable,
    Target,
    Txn,
    TxnResult,
    UnknownOutcome,
    WatchBatch,
    check_txn,
)

from broker_image.tests.sim.kernel import Future, Host, Kernel, Process
from broker_image.tests.sim.net import SimNet

DEADLINE_MS = 1_000
"""After which a client gives up on an answer."""
NEVER = -1
"""A scripted transaction that is not done, and not answered either, though the store can be reached."""


class StoreState:
    """Keys, revisions, leases' keys and the history since the last compaction."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.items: dict[str, KeyValue] = {}
        self.history: list[WatchBatch] = []
        self.leases: dict[int, int] = {}  # id -> ttl in s
        self._leases_made = 0

    def grant(self, ttl_s: int) -> int:
        self._leases_made += 1
        self.leases[self._leases_made] = ttl_s
        return self._leases_made

    def end_lease(self, lease: int) -> None:
        if self.leases.pop(lease, None) is not None:
            held = [Delete(item.key) for item in self.items.values() if item.lease == lease]
            self._write(tuple(held))

    def txn(self, txn: Txn) -> TxnResult:
        """Raises LeaseNotFound, and ValueError as `check_txn`."""
        check_txn(txn)
        succeeded = all(map(self._holds, txn.compares))
        operations = txn.success if succeeded else txn.failure
        for operation in operations:
            if isinstance(operation, Put) and operation.lease not in {0, *self.leases}:
                raise LeaseNotFound(operation.key)
        self._write(operations)
        reads = tuple(self.items.get(each.key) for each in operations if isinstance(each, Get))
        return TxnResult(succeeded, self.revision, reads)

    def range(self, prefix: str) -> Snapshot:
        found = sorted(key for key in self.items if key.startswith(prefix))
        return Snapshot(self.revision, tuple(self.items[key] for key in found))

    def since(self, revision: int) -> list[WatchBatch] | None:
        """What changed after it; None if that is compacted."""
        if revision < self.compacted:
            return None
        return [batch for batch in self.history if batch.revision > revision]

    def write_elsewhere(self) -> None:
        """Another tenant writes below its own prefix."""
        self.revision += 1

    def compact(self, revision: int) -> None:
        self.compacted = max(self.compacted, revision)
        self.history = [batch for batch in self.history if batch.revision > self.compacted]

    def _holds(self, compare: Compare) -> bool:
        item = self.items.get(compare.key)
        if compare.target is Target.VALUE:
            return item is not None and (item.value == compare.operand) != compare.negated
        found = 0 if item is None else getattr(item, compare.target.value)
        return bool((found == compare.operand) != compare.negated)

    def _write(self, operations: Sequence[Operation]) -> None:
        events: list[Event] = []
        revision = self.revision + 1
        for operation in operations:
            match operation:
                case Put(key, value, lease):
                    before = self.items.get(key)
                    created = revision if before is None else before.create_revision
                    version = 1 if before is None else before.version + 1
                    item = KeyValue(key, value, created, revision, version, lease)
                    self.items[key] = item
                    events.append(item)
                case Delete(key):
                    if self.items.pop(key, None) is not None:
                        events.append(Deleted(key))
                case DeletePrefix(prefix):
                    gone = [key for key in self.items if key.startswith(prefix)]
                    for key in gone:
                        del self.items[key]
                    events += map(Deleted, gone)
                case Get():
                    pass
        if events:
            self.revision = revision
            self.history.append(WatchBatch(revision, tuple(events)))


class StoreFaults(msgspec.Struct):
    """What may happen to a transaction, in percent. tenant: another tenant writes before it."""

    unknown: int = 0
    late: int = 0
    refused: int = 0
    dropped: int = 0
    tenant: int = 0


class Watcher:
    """A host's one watch. is_held: nothing is shown to it for now."""

    def __init__(self, host: Host, on_image: Callable[[ClusterImage], None], revision: int) -> None:
        self.host, self.life = host, host.life
        self.on_image = on_image
        self.revision = revision
        self.is_due = self.is_held = False


class SimStore:
    """image: the newest; its revision is that of the last event below the fleet's own prefix.

    Each is made by the product's own builder, once for all who watch.
    """

    def __init__(self, kernel: Kernel, net: SimNet) -> None:
        self.state = StoreState()
        self.host = Host("store")
        self.faults = StoreFaults()
        # host -> of its next transactions: done after so many ms (or NEVER), and the answer lost; None: as ever
        self.scripted: dict[str, list[int | None]] = {}
        self.is_out = False
        self.on_commit: Callable[[WatchBatch, ClusterImage], None] = lambda _batch, _image: None
        self.image = ClusterImage()
        self.watchers: dict[str, Watcher] = {}
        self._kernel, self._net = kernel, net
        self._images: dict[int, ClusterImage] = {1: self.image}
        self._published = 1  # every event up to this revision of the store is in `image`
        self._deadlines: dict[int, int] = {}

    # what a client calls

    def txn(self, host: Host, txn: Txn) -> Future:
        """Resolves to a TxnResult, or the StoreError that was raised."""
        answer, kernel = Future(), self._kernel
        fate = kernel.draw("store.fate", 100)
        scripts = self.scripted.get(host.name)
        scripted = scripts.pop(0) if scripts else None
        if fate >= 100 - self.faults.refused:
            kernel.at(5, host, "refused", answer.resolve, StoreUnavailable())
            return answer
        if scripted == NEVER or self._is_dropped():
            kernel.sometimes("a transaction was neither done nor answered")
            return kernel.expire(host, answer, DEADLINE_MS, UnknownOutcome())
        delay, late = self._net.delay(), fate >= 100 - self.faults.refused - self.faults.late
        if late:  # its client has given up by then, and what it has written since stands before it
            delay += DEADLINE_MS + kernel.draw("store.late", 3_000)
            kernel.sometimes("a proposal was committed late")
        if scripted is not None:
            delay = scripted
        lost = (
            late
            or scripted is not None
            or fate >= 100 - self.faults.refused - self.faults.late - self.faults.unknown
        )
        kernel.at(delay, self.host, "txn", self._arrive, host, txn, None if lost else answer)
        return kernel.expire(host, answer, DEADLINE_MS, UnknownOutcome())

    def _is_dropped(self) -> bool:
        percent = self.faults.dropped
        return percent > 0 and self._kernel.draw("drop.fate", 100) >= 100 - percent

    def settle(self, host: Host, txn: Txn) -> Process:
        """Commit it until the answer is definite, as `store.claims`: (result, whether an attempt went unanswered)."""
        attempts = Attempts()
        while True:
            result = yield self.txn(host, txn)
            if not isinstance(result, Unanswered):
                return result, attempts.may_be_applied
            yield attempts.failed(result)

    def grant_lease(self, host: Host, ttl_s: int) -> Future:
        """Resolves to the lease's id or None."""
        return self._ask(host, "grant", lambda: self._granted(ttl_s))

    def range(self, host: Host, prefix: str) -> Future:
        """Resolves to the keys under a prefix as a Snapshot, None if nobody answered."""
        return self._ask(host, "range", lambda: self.state.range(prefix))

    def keep_alive(self, host: Host, lease: int) -> Future:
        """Resolves to True, False if it has ended, None if nobody answered."""
        return self._ask(host, "keepalive", lambda: self._kept(lease))

    def revoke(self, host: Host, lease: int) -> Future:
        return self._ask(host, "revoke", lambda: self._revoked(lease))

    def watch(self, host: Host, on_image: Callable[[ClusterImage], None]) -> None:
        """From the newest image on, each one newer than that before; several revisions may come as one."""
        self.watchers[host.name] = Watcher(host, on_image, 0)
        self._poke(self.watchers[host.name])

    # what happens to it

    def compact(self) -> None:
        """Whoever has not seen all is shown a snapshot next."""
        self.state.compact(self.state.revision)
        self._images = {self.image.revision: self.image}
        for watcher in self.watchers.values():
            if watcher.revision >= self.image.revision:
                watcher.revision = self.state.revision

    def outage(self, ms: int, *, ends_leases: bool = False) -> None:
        """No quorum; afterwards all leases live as long as if they were new, or all have ended."""
        self.is_out = True
        then = self._end_lease if ends_leases else self._extend
        self._kernel.at(ms, self.host, "outage ends", self._back, then)

    def poke(self) -> None:
        """Links have changed: whoever waits for news may get them now."""
        for watcher in self.watchers.values():
            self._poke(watcher)

    def hold_watch(self, host: Host, *, is_held: bool = True) -> None:
        self.watchers[host.name].is_held = is_held
        self._poke(self.watchers[host.name])

    def _back(self, then: Callable[[int, int], None]) -> None:
        self.is_out = False
        for lease, ttl_s in list(self.state.leases.items()):
            then(lease, ttl_s)

    def _end_lease(self, lease: int, _ttl_s: int = 0) -> None:
        self.state.end_lease(lease)
        self._publish()

    def _ask(self, host: Host, label: str, action: Callable[[], object]) -> Future:
        answer, kernel = Future(), self._kernel

        def arrive() -> None:
            if self._is_reachable(host):
                value = action()
                if self._net.is_open(self.host.name, host.name):
                    kernel.at(self._net.delay(), host, label, answer.resolve, value)

        kernel.at(self._net.delay(), self.host, label, arrive)
        return kernel.expire(host, answer, DEADLINE_MS, None)

    def _is_reachable(self, host: Host) -> bool:
        return not self.is_out and self._net.is_open(host.name, self.host.name)

    def _arrive(self, host: Host, txn: Txn, answer: Future | None) -> None:
        """answer: None if it is to be lost."""
        kernel = self._kernel
        if not self._is_reachable(host):
            if kernel.draw("store.held", 2):  # a member holds it until it can be committed
                kernel.at(500, self.host, "txn", self._arrive, host, txn, None)
            return
        if self.faults.tenant and kernel.draw("tenant.writes", 100) >= 100 - self.faults.tenant:
            self.state.write_elsewhere()
        value: TxnResult | StoreError
        try:
            value = self.state.txn(txn)
        except LeaseNotFound as error:
            value = error
        self._publish()
        if answer is None or not self._net.is_open(self.host.name, host.name):
            if isinstance(value, TxnResult) and value.succeeded:
                kernel.sometimes("an unknown outcome had been applied")
            return
        kernel.at(self._net.delay(), host, "txn answer", answer.resolve, value)

    def _publish(self) -> None:
        for batch in self.state.since(self._published) or []:
            builder = ImageBuilder(self.image)
            for event in batch.events:
                builder.add(event)
            self.image, _ = builder.build(batch.revision)
            self._images[batch.revision] = self.image
            self.on_commit(batch, self.image)
        self._published = self.state.revision
        self.poke()

    def _poke(self, watcher: Watcher) -> None:
        if watcher.is_due or watcher.is_held or watcher.revision >= self.image.revision:
            return
        if watcher.life == watcher.host.life and self._net.is_open(
            self.host.name, watcher.host.name
        ):
            watcher.is_due = True
            self._kernel.at(self._net.delay(), self.host, "watch", self._show, watcher)

    def _show(self, watcher: Watcher) -> None:
        watcher.is_due = False
        if watcher.is_held or not self._net.is_open(self.host.name, watcher.host.name):
            return
        following = [revision for revision in self._images if revision > watcher.revision]
        if watcher.revision < self.state.compacted or not watcher.revision:
            if watcher.revision:
                self._kernel.sometimes("a watch began again with a snapshot")
            watcher.revision = self.state.revision
            image = msgspec.structs.replace(self.image, revision=watcher.revision)
        else:
            one_by_one = len(following) > 1 and self._kernel.draw("store.coalesce", 2)
            watcher.revision = following[0] if one_by_one else following[-1]
            image = self._images[watcher.revision]
        if watcher.life == watcher.host.life:
            self._kernel.at(0, watcher.host, "image", watcher.on_image, image)
        self._poke(watcher)

    def _granted(self, ttl_s: int) -> int:
        lease = self.state.grant(ttl_s)
        self._extend(lease, ttl_s)
        return lease

    def _kept(self, lease: int) -> bool:
        ttl_s = self.state.leases.get(lease)
        if ttl_s is None:
            return False
        self._extend(lease, ttl_s)
        return True

    def _revoked(self, lease: int) -> bool:
        self._end_lease(lease)
        return True

    def _extend(self, lease: int, ttl_s: int) -> None:
        deadline = self._deadlines[lease] = self._kernel.now + 1000 * ttl_s
        self._kernel.at(1000 * ttl_s, self.host, "expiry", self._expire, lease, deadline)

    def _expire(self, lease: int, deadline: int) -> None:
        if self._deadlines.get(lease) == deadline and lease in self.state.leases:
            if self.is_out:
                self._kernel.sometimes("a lease outlived an outage of the store")
                return  # it is granted anew when the store is back
            self._kernel.note("store", "lease %s has expired", lease)
            self._end_lease(lease)
