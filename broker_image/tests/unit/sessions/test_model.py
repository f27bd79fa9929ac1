"""A session that reads what is due answers like one that reads everything (Kafka's FetchSession), whatever happens in between."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from logfleet.replication.waiters import Waiters
from logfleet.sessions.fetch_session import FetchSession
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

INDICES = st.integers(0, 4)
KEYS = [(b"t", index) for index in range(5)]
OFFSETS = st.integers(-1, 12)
LIMITS = st.integers(0, 6)


class Log:
    """A partition of the broker: offsets [start, end) of one byte each; not served while it is not led.

    stable: the last stable offset.
    """

    def __init__(self) -> None:
        self.start = self.end = self.stable = 0
        self.is_led = True
        self.waiters = Waiters()
        self.add_waiter, self.remove_waiter = self.waiters.add, self.waiters.remove

    @property
    def log_end_offset(self) -> int:
        return self.end


def read(log: Log, offset: int, limit: int, *, reads_stable: bool) -> FetchResponse.PartitionData:
    end = log.stable if reads_stable else log.end
    if not log.is_led:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif not log.start <= offset <= log.end:
        error = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        return FetchResponse.PartitionData(
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start,
            records=bytes(max(0, min(end - offset, limit))),
        )
    return FetchResponse.PartitionData(
        error_code=error, high_watermark=-1, log_start_offset=-1, records=b""
    )


def size(row: FetchResponse.PartitionData) -> int:
    return 0 if row.records is None else len(row.records)


class NaiveSession:
    """Kafka's, as it is written: every request reads every partition."""

    def __init__(self, *, reads_stable: bool) -> None:
        self.reads_stable = reads_stable
        self.order: list[int] = []
        self.offsets: dict[int, int] = {}
        self.told: dict[int, tuple[int, int]] = {}

    def update(self, moved: dict[int, int], forgotten: list[int]) -> None:
        for index, offset in moved.items():
            if index not in self.offsets:
                self.order.append(index)
                self.told[index] = (-1, -1)
            self.offsets[index] = offset
        for index in forgotten:
            if self.offsets.pop(index, None) is not None:
                self.order.remove(index)

    def answer(self, logs: list[Log], limit: int) -> list[Any]:
        given = []
        for index in list(self.order):
            row = read(logs[index], self.offsets[index], limit, reads_stable=self.reads_stable)
            limit -= size(row)
            ends = (row.high_watermark, row.log_start_offset)
            if row.records or row.error_code or ends != self.told[index]:
                given.append((index, row))
            self.told[index] = (-1, row.log_start_offset) if row.error_code else ends
            if row.records:
                self.order.remove(index)
                self.order.append(index)
        return given


class Sessions(RuleBasedStateMachine):
    reads_stable = False

    def __init__(self) -> None:
        super().__init__()
        self.logs = [Log() for _ in KEYS]
        self.session = FetchSession(
            1, by_id=True, privileged=False, reads_stable=self.reads_stable, now_ms=0
        )
        self.naive = NaiveSession(reads_stable=self.reads_stable)

    @initialize(moved=st.dictionaries(INDICES, OFFSETS, max_size=5), limit=LIMITS)
    def full(self, moved, limit) -> None:
        self.request(moved, [], limit)

    @rule(index=INDICES, count=st.integers(1, 3), is_open=st.booleans())
    def append(self, index, count, is_open) -> None:
        """is_open: in a transaction that has not ended."""
        log = self.logs[index]
        if log.is_led:
            log.end += count
            log.waiters.committed(count)
            log.waiters.next_committed(count)
            if not is_open:
                added, log.stable = log.end - log.stable, log.end
                log.waiters.stable(added)

    @rule(index=INDICES, count=st.integers(1, 3))
    def delete_records(self, index, count) -> None:
        log = self.logs[index]
        if log.is_led:
            log.start = min(log.end, log.start + count)
            log.stable = max(log.stable, log.start)
            log.waiters.log_start_moved()

    @rule(index=INDICES)
    def move_leadership(self, index) -> None:
        """Away, or back as another object, as the broker does it."""
        old = self.logs[index]
        log = Log()
        log.start, log.end, log.stable, log.is_led = old.start, old.end, old.stable, not old.is_led
        self.logs[index] = log
        old.waiters.role_ended()

    @rule(
        moved=st.dictionaries(INDICES, OFFSETS, max_size=3),
        forgotten=st.lists(INDICES, max_size=2),
        limit=LIMITS,
    )
    def request(self, moved, forgotten, limit) -> None:
        self.naive.update(moved, forgotten)
        self.session.update(
            {
                KEYS[index]: FetchRequest.FetchPartition(partition=index, fetch_offset=offset)
                for index, offset in moved.items()
            },
            [KEYS[index] for index in forgotten],
        )
        wanted = self.naive.answer(self.logs, limit)
        due = self.session.due()
        given = []
        for partition in due:
            _, index = partition.key
            log = self.logs[index]
            offset = partition.wanted.fetch_offset
            row = read(log, offset, limit, reads_stable=self.reads_stable)
            limit -= size(row)
            partition.listen(log if log.is_led else None)
            if self.session.store_sent(partition, row):
                given.append((index, row))
        assert given == wanted

    @rule(limit=LIMITS)
    def follow(self, limit) -> None:
        """A reader that takes what it gets: reads on until nothing comes."""
        ends = {index: self.end_of(index) for index in self.naive.offsets}
        self.request(ends, [], limit)
        self.request({}, [], limit)
        idle = [
            partition.key
            for partition in self.session.partitions.values()
            if self.logs[partition.key[1]].is_led
        ]
        assert not {partition.key for partition in self.session.due()}.intersection(idle)

    @rule(index=INDICES, limit=LIMITS)
    def follow_a_transaction(self, index, limit) -> None:
        """As `follow`, while it is written."""
        self.follow(limit)
        for _ in range(2):
            self.append(index, 1, is_open=True)
            self.request({}, [], limit)

    def end_of(self, index: int) -> int:
        log = self.logs[index]
        return log.stable if self.reads_stable else log.end

    @invariant()
    def what_is_not_led_is_due_and_all_else_listens(self) -> None:
        due = {partition.key for partition in self.session.due()}
        for key, partition in self.session.partitions.items():
            log = self.logs[key[1]]
            if key not in due:
                assert log.is_led
                assert partition.source is log
        for index, log in enumerate(self.logs):
            assert len(log.waiters) <= (KEYS[index] in self.session.partitions)


class StableSessions(Sessions):
    """Of a reader of committed transactions."""

    reads_stable = True


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=150, stateful_step_count=40)
TestStableSessions = StableSessions.TestCase
TestStableSessions.settings = settings(max_examples=150, stateful_step_count=40)
