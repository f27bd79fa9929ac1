"""A fetcher under events in any order: requests, rows, connections, truncations, slow disks, changes of leader epochs."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from logfleet.replication.fetcher import (
    AHEAD_S_MAX,
    RECONNECT_S_MAX,
    RECONNECT_S_MIN,
    Apply,
    AskRange,
    ReportAhead,
    Restart,
    Truncate,
    WhenWritten,
)
from logfleet.replication.leader_epochs import LeaderEpochs
from logfleet.replication.partition_fetch import FetchState, Key
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.replication.fetcher_rig import Fetch, Log, Replica, Rig, row

S = FetchState
INDEXES = st.integers(0, 3)
ROWS = st.sampled_from(
    [
        *3 * ["records"],
        "nothing",
        "high watermark",
        "log start",
        "diverging",
        "diverging below the start",
        *(
            error.name
            for error in (
                ErrorCode.OFFSET_OUT_OF_RANGE,
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        ),
    ]
)
APPENDS = st.sampled_from([*3 * ["done"], "ahead", "cut off", "refused", "failed", "overlapping"])


class FetcherMachine(RuleBasedStateMachine):
    """The shell, in steps that may come in any order.

    logs: by index; a role passes its log to the next one. session: what the leader goes by, by key.
    writes, truncations: effects that are not carried out yet. asking: the fetch of whose range the
    leader is asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.fetcher = self.rig.fetcher
        self.logs = [Log(end=20) for _ in range(4)]
        self.roles: dict[int, Replica] = {}
        self.epoch = 5
        self.is_connected = self.is_in_flight = self.is_held_up = False
        self.session: dict[Key, Fetch] = {}
        self.writes: list[Fetch] = []
        self.truncations: list[Truncate[Replica] | Restart[Replica]] = []
        self.asking: Fetch | None = None
        self.reported: set[Fetch] = set()

    # --- the image

    @initialize()
    def begin(self) -> None:
        self.follow(0)
        self.connect()

    @rule(index=INDEXES)
    def follow(self, index: int) -> None:
        """In a new leader epoch, if it is followed already."""
        former = self.roles.pop(index, None)
        if former is not None:
            self.fetcher.removed(former)
        self.epoch += 1
        role = self.roles[index] = Replica(index, self.logs[index], self.epoch)
        self.carry_out(self.fetcher.assigned(role))

    @rule(index=INDEXES)
    def follow_no_more(self, index: int) -> None:
        role = self.roles.pop(index, None)
        if role is not None:
            self.fetcher.removed(role)

    # --- the connection

    @precondition(lambda self: not self.is_connected)
    @rule()
    def connect(self) -> None:
        self.fetcher.connecting((1, "leader", 1))
        self.is_connected = True

    @precondition(lambda self: self.is_connected)
    @rule()
    def lose_the_connection(self) -> None:
        pause_s = self.fetcher.disconnected()
        assert RECONNECT_S_MIN <= pause_s <= RECONNECT_S_MAX
        self.is_connected = self.is_in_flight = False
        self.asking = None
        self.session = {}

    @property
    def may_request(self) -> bool:
        return self.is_connected and not self.is_in_flight and self.asking is None

    @precondition(lambda self: self.may_request)
    @rule()
    def request(self) -> None:
        left_s = self.fetcher.resume(self.rig.now_s)
        assert left_s is None or 0 < left_s <= AHEAD_S_MAX
        if not self.rig.session:
            return
        named, forgotten = self.rig.session.take()
        for key in forgotten:
            self.session.pop(key, None)
        for key in named:
            fetch = self.session[key] = self.fetcher.partitions[key]
            fetch.ask(1000)
            assert fetch.asked is not None
            assert fetch.asked.leader_epoch == self.roles[key[1]].leader_epoch
            assert fetch.asked.offset <= fetch.replica.log.written_end_offset
        self.is_in_flight = True

    @precondition(lambda self: self.is_in_flight)
    @rule(kinds=st.tuples(*4 * [ROWS]), appends=st.tuples(*4 * [APPENDS]))
    def respond(self, kinds: tuple[str, ...], appends: tuple[str, ...]) -> None:
        """kinds: what the leader has of each partition that is in the session."""
        self.is_in_flight = False
        self.fetcher.responded()
        assert not self.fetcher.is_reconnecting
        self.rig.session.accept(7)
        for key in sorted(self.session):
            if kinds[key[1]] != "nothing" and self.asking is None:
                self.receive(key, kinds[key[1]], appends[key[1]])

    @precondition(lambda self: self.may_request)
    @rule(kinds=st.tuples(*4 * [ROWS]), appends=st.tuples(*4 * [APPENDS]))
    def fetch(self, kinds: tuple[str, ...], appends: tuple[str, ...]) -> None:
        """Nothing else happens between the request and the response."""
        self.request()
        if self.is_in_flight:
            self.respond(kinds, appends)

    @precondition(lambda self: self.is_in_flight)
    @rule()
    def lose_the_session(self) -> None:
        self.is_in_flight = False
        self.session = {}
        self.fetcher.responded()
        assert self.fetcher.refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND) == 0

    @rule(index=INDEXES, kind=ROWS.filter(lambda kind: kind != "nothing"), append=APPENDS)
    def receive_what_nobody_asked_for(self, index: int, kind: str, append: str) -> None:
        """Of a partition that is not in the session, or not in this leader epoch."""
        log, key = self.logs[index], (Replica(index, self.logs[index]).topic_id, index)
        fetch = self.fetcher.partitions.get(key)
        if fetch is None or fetch.state is not S.FETCHING:
            before = (log.log_end_offset, fetch and fetch.state)
            self.receive(key, kind, append)
            assert before == (log.log_end_offset, fetch and fetch.state)

    def receive(self, key: Key, kind: str, append: str) -> None:
        log = self.logs[key[1]]
        known: dict[str, dict[str, Any]] = {
            "records": {"records": b"records"},
            "high watermark": {"high_watermark": 1},
            "log start": {"log_start_offset": min(log.log_start_offset + 1, log.log_end_offset)},
            "diverging": {"diverging": (3, log.log_end_offset - 1)},
            "diverging below the start": {
                "diverging": (3, log.log_end_offset),
                "log_start_offset": log.log_end_offset + 5,
            },
        }
        found = row(key[1], **(known.get(kind) or {"error_code": ErrorCode[kind]}))
        self.carry_out(self.fetcher.received(key, found, self.rig.now_s), append)

    def carry_out(self, effect: Any, append: str = "done") -> None:
        if effect is None:
            return
        fetch = effect.fetch
        assert fetch.replica is self.roles[fetch.key[1]], "an effect on what another role has"
        match effect:
            case Apply():
                self.apply(effect, append)
            case Truncate() | Restart():
                self.truncations.append(effect)
            case WhenWritten():
                self.writes.append(fetch)
            case AskRange():
                self.asking = fetch
            case ReportAhead():
                assert fetch not in self.reported, "reported again before anything was appended"
                self.reported.add(fetch)

    def apply(self, effect: Apply[Replica], append: str) -> None:
        fetch, log, now_s = effect.fetch, effect.fetch.replica.log, self.rig.now_s
        if effect.row.records:
            match append:
                case "done":
                    log.log_end_offset += 1
                    if not self.is_held_up:
                        log.written_end_offset = log.log_end_offset
                    fetch.replica.lag = 1
                    self.reported.discard(fetch)
                    self.carry_out(self.fetcher.appended(fetch, now_s))
                case "ahead":
                    epoch = LeaderEpoch(fetch.replica.leader_epoch + 1)
                    self.carry_out(self.fetcher.nothing_appended(fetch, epoch, now_s))
                case "cut off":
                    assert self.fetcher.nothing_appended(fetch, None, now_s) is None
                case "refused":
                    self.fetcher.not_appended(fetch, now_s)
                case "failed":
                    self.follow_no_more(fetch.key[1])
                    self.fetcher.not_appended(fetch, now_s)
                case "overlapping":
                    end = log.log_end_offset
                    found = row(records=b"records", log_start_offset=end)
                    self.carry_out(self.fetcher.overlapped(fetch, found, end - 1, end))
        elif effect.row.log_start_offset > log.log_start_offset:
            log.log_start_offset = effect.row.log_start_offset
            self.fetcher.log_start_moved(fetch)
            assert fetch.key in self.rig.session._unnamed, "the next request reports it"

    # --- the disk

    @rule(is_held_up=st.booleans())
    def hold_up_the_disk(self, *, is_held_up: bool) -> None:
        self.is_held_up = is_held_up
        if not is_held_up:
            for log in self.logs:
                log.written_end_offset = log.log_end_offset
            writes, self.writes = self.writes, []
            for fetch in writes:
                self.fetcher.written(fetch, self.rig.now_s)

    @precondition(lambda self: self.truncations)
    @rule(data=st.data(), append=APPENDS, is_done=st.booleans())
    def complete_a_truncation(self, data: Any, append: str, *, is_done: bool) -> None:
        effect = data.draw(st.sampled_from(self.truncations))
        self.truncations.remove(effect)
        fetch, log = effect.fetch, effect.fetch.replica.log
        if fetch.is_ended:
            assert self.fetcher.truncated(fetch, self.rig.now_s, is_done=False) is None
            return
        if is_done:
            log.log_end_offset = log.written_end_offset = effect.offset
            log.log_start_offset = min(log.log_start_offset, effect.offset)
            if isinstance(effect, Restart):
                log.log_start_offset, log.epochs = effect.offset, LeaderEpochs()
        self.carry_out(self.fetcher.truncated(fetch, self.rig.now_s, is_done=is_done), append)

    @precondition(lambda self: self.asking is not None)
    @rule(found=st.sampled_from([None, (0, 1), (0, 1000), (1000, 2000)]))
    def tell_the_range(self, found: tuple[int, int] | None) -> None:
        fetch, self.asking = self.asking, None
        assert fetch is not None
        self.carry_out(self.fetcher.range_received(fetch, found, self.rig.now_s))

    # --- time

    @rule(ms=st.sampled_from([1, 50, 400, 31_000]))
    def wait(self, ms: int) -> None:
        self.rig.now_s += ms / 1000

    @rule(ms=st.sampled_from([0, 0, 30, 5_000]))
    def throttle(self, ms: int) -> None:
        self.rig.throttle_ms = ms

    # --- what holds

    @invariant()
    def only_roles_that_last_are_copied(self) -> None:
        copied = {key[1]: fetch.replica for key, fetch in self.fetcher.partitions.items()}
        assert copied == self.roles

    @invariant()
    def the_session_has_what_is_to_be_fetched(self) -> None:
        fetched = {S.DUE, S.FETCHING}
        indexes = {fetch.key[1] for fetch in self.fetches() if fetch.state in fetched}
        assert self.rig.in_session == indexes

    @invariant()
    def a_row_counts_only_for_what_the_leader_was_asked(self) -> None:
        for fetch in self.fetches():
            assert (fetch.asked is not None) == (fetch.state is S.FETCHING)
            if fetch.state is S.FETCHING and self.is_in_flight:
                assert self.session[fetch.key] is fetch

    @invariant()
    def every_partition_waits_for_an_event_that_will_come(self) -> None:
        truncating = [effect.fetch for effect in self.truncations]
        for fetch in self.fetches():
            assert truncating.count(fetch) == (fetch.state is S.TRUNCATING)
            assert self.writes.count(fetch) == (fetch.state is S.WRITING)
            assert (self.asking is fetch) == (fetch.state is S.ASKING_RANGE)
            assert fetch.state not in {S.APPENDING, S.ENDED}
            paused = self.fetcher._paused.get(fetch.key)
            assert (paused is fetch) == (fetch.state is S.PAUSED)
            if paused is not None:
                assert fetch.until_s <= self.rig.now_s + AHEAD_S_MAX

    def fetches(self) -> list[Fetch]:
        return list(self.fetcher.partitions.values())


def test_a_fetcher_under_events_in_any_order() -> None:
    run_state_machine_as_test(
        FetcherMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )
