"""What a test may do to brokers of its own, besides killing and stopping them.

The test process imports this: it knows nothing of how a broker serves.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self

from logfleet.testing.errors import OrderFailed
from logfleet.testing.kafka import TIMEOUT_S, Kafka

GRACE_S: Final = 5.0
LONG_S: Final = 60.0
"""For what walks over all logs of a broker."""


class FaultMissed(AssertionError):
    """A fault hit too few requests, so that the test has not shown what it was to show."""


class Ordered(Protocol):
    """A broker that takes orders while it runs."""

    @property
    def id(self) -> int: ...
    @property
    def answers(self) -> bool: ...
    def order(self, do: str, *, timeout_s: float = ..., **arguments: Any) -> Any: ...
    def advance_by(self, ms: int, /) -> None:
        """Have its wall clock be later, from its next start on if it does not run."""
        ...


class ArmedFault:
    """A fault that is armed at one broker or at several, until `remove` or the end of its block.

    Leaving the block fails with FaultMissed if no request was hit, unless `missed` is set.
    """

    def __init__(
        self, brokers: Sequence[Ordered], described: Mapping[str, Any], *, missed: bool
    ) -> None:
        self._described = described
        self._missed = missed
        self._numbers = {each.id: each.order("fault", fault=described) for each in brokers}
        self._brokers = brokers
        self._counts = {each.id: 0 for each in brokers}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        hits = self.remove()
        if kind is None and not hits and not self._missed:
            raise FaultMissed(f"{self} hit no request")

    def __str__(self) -> str:
        fields = self._described.items()
        return f"fault({', '.join(f'{name}={value!r}' for name, value in fields)})"

    @property
    def hits(self) -> int:
        """How many requests it has hit; of a broker that ended, when it was last asked."""
        return self._counted("fault_hits")

    def wait(self, hits: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it has hit so many requests. Raises FaultMissed."""
        if len(self._brokers) == 1:
            self._counted("fault_hits", timeout_s=timeout_s + GRACE_S, hits=hits, limit_s=timeout_s)
        else:
            self._wait_for_sum(hits, timeout_s)
        if sum(self._counts.values()) < hits:
            raise FaultMissed(f"{self} hit {self.hits} of {hits} requests in {timeout_s:g} s")

    def _wait_for_sum(self, hits: int, timeout_s: float) -> None:
        step_s = min(timeout_s, 0.05)
        for _ in range(int(timeout_s / step_s)):
            if self.hits >= hits:
                return
            first = next(each for each in self._brokers if each.answers)
            number, seen = self._numbers[first.id], self._counts[first.id]
            first.order("fault_hits", number=number, hits=seen + 1, limit_s=step_s)

    def remove(self) -> int:
        """Hit no more requests; how many it has hit. A second call changes nothing."""
        hits = self._counted("remove_fault")
        self._numbers.clear()
        return hits

    def _counted(self, do: str, **arguments: Any) -> int:
        for each in self._brokers:
            if each.id in self._numbers and each.answers:
                try:
                    found = each.order(do, number=self._numbers[each.id], **arguments)
                except OrderFailed:
                    continue  # it was killed, or started again and has no faults
                self._counts[each.id] = found["hits"]
        return sum(self._counts.values())


class Disturbed(Kafka):
    """A cluster of brokers of one's own, whose requests, disks and clocks a test may disturb.

    In a fleet each method acts on every broker that runs. A broker that starts again has no faults,
    and a disk in order; its clock stays advanced.
    """

    @abstractmethod
    def _disturbed(self) -> Sequence[Ordered]:
        """Its brokers, whether they run or not."""

    def _running(self) -> list[Ordered]:
        return [each for each in self._disturbed() if each.answers]

    def fault(
        self,
        api: str,
        *,
        error: str | None = None,
        delay_s: float | None = None,
        lose_answer: bool = False,
        drop: bool = False,
        tear: int | None = None,
        observe: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        every: int = 1,
        times: int | None = 1,
        missed: bool = False,
    ) -> ArmedFault:
        """Disturb the next requests of one API, in exactly one of six ways.

        error: Kafka's name of an error. Partitions and topics that are hit get it in their rows and
        are not touched; the rest of the request is carried out. delay_s: the answer is sent so much
        later. lose_answer: the request is carried out, and its connection closed without the
        answer. drop: the connection is closed, and the request not carried out. tear: a fetch gets
        only so many bytes of each partition's records. observe: requests are counted.

        topic, partition, group, client_id: only requests that name these. every: only each
        `every`th of them. times: so many, None for all; each broker of a fleet counts for itself.
        missed: the block may end without a hit. Raises OrderFailed with the nearest names if one of
        them is wrong. Fetches of followers and what this object asks are not disturbed.
        """
        described: dict[str, Any] = {
            "api": api,
            "error": error,
            "delay_s": delay_s,
            "lose_answer": lose_answer,
            "drop": drop,
            "tear": tear,
            "observe": observe,
            "topic": topic,
            "partition": partition,
            "group": group,
            "client_id": client_id,
        }
        given = {
            name: value
            for name, value in described.items()
            if value is not None and value is not False
        }
        given |= {"every": every, "times": times} if (every, times) != (1, 1) else {}
        return ArmedFault(self._running(), given, missed=missed)

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Inside, nothing more can be written: producers get KAFKA_STORAGE_ERROR, consumers read.

        The broker has noticed both the beginning and the end.
        """
        yield from self._disk(full=True)

    @contextmanager
    def disk_slow(self, seconds: float) -> Iterator[None]:
        """Inside, each write of records, and each wait for the disk, takes so much longer."""
        yield from self._disk(slow_s=seconds)

    def _disk(self, *, full: bool = False, slow_s: float = 0.0) -> Generator[None]:
        self.set_disk(full=full, slow_s=slow_s)
        try:
            yield
        finally:
            self.set_disk()

    def set_disk(self, *, full: bool = False, slow_s: float = 0.0) -> None:
        """Have the disk be so from now on, as `disk_full` and `disk_slow` have it inside."""
        self._order_each("disk", full=full, slow_s=slow_s)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0) -> None:
        """Have the wall clocks of the brokers be later, and do what is due then.

        Records, committed offsets and idempotent producers that have expired by then are gone when
        this returns. Sessions of members and of brokers do not run by the wall clock.
        """
        passed = timedelta(days=days, hours=hours, minutes=minutes)
        ms = passed // timedelta(milliseconds=1)
        for each in self._disturbed():
            each.advance_by(ms)

    def compact_now(self, topic: str | None = None) -> None:
        """Compact all topics with cleanup.policy=compact, or this one, up to their logs' ends.

        Records younger than min.compaction.lag.ms stay.
        """
        self._order_each("compact", timeout_s=LONG_S, topic=topic)

    def expire_producer(self, producer_id: int | None = None) -> int:
        """Have the brokers forget an idempotent producer, as producer.id.expiration.ms does.

        None for all producers. Returns how many partitions had state of one. Those with an open
        transaction stay.
        """
        found = self._order_each("expire_producers", producer=producer_id)
        return sum(found)

    def _order_each(self, do: str, *, timeout_s: float = TIMEOUT_S, **arguments: Any) -> list[Any]:
        return [each.order(do, timeout_s=timeout_s, **arguments) for each in self._running()]

    def _disturb(self, do: str, **arguments: Any) -> Any:
        """The result of the one broker that can do it; the others' reasons if there is none."""
        reasons = []
        for each in self._running():
            try:
                return each.order(do, **arguments)
            except OrderFailed as error:
                reasons.append(str(error))
        raise OrderFailed("; ".join(reasons) or "no broker runs")
