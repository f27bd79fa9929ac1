"""How one partition is copied from its leader: the states of that, and what may follow each.

Kafka's PartitionFetchState, with a state for each event that a partition can wait for. Only
`replication.fetcher` changes the states.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from logfleet.replication.follower import NextFetch, next_fetch
from logfleet.replication.leader_epochs import LeaderEpochs
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import FetchRequest, FetchResponse

Key = tuple[bytes, int]
"""Topic id and index of a partition."""
Row = FetchResponse.PartitionData

PAUSE_S_MIN: Final = 0.05
"""The first pause of a partition after an error; the next ones are longer."""


class FetchState(Enum):
    """What a partition waits for. It is in the fetch session while DUE, FETCHING or APPENDING.

    after: the states that may follow (NEXT_STATES).
    """

    after: tuple["FetchState", ...]

    DUE = auto()
    """The next request with room names it. No response can be about it yet."""
    FETCHING = auto()
    """A request named it from the end of its log: its row in a response counts."""
    APPENDING = auto()
    """The shell appends the records of its row, and reports the outcome at once."""
    WRITING = auto()
    """Its disk is held up: it is fetched again once all that its log has is written.

    A fetch offset reports that the follower has everything below, and the leader acknowledges
    records on that.
    """
    ASKING_RANGE = auto()
    """The shell asks the leader where its log starts and ends."""
    TRUNCATING = auto()
    """The shell truncates the log, or starts it elsewhere. Others are fetched meanwhile."""
    PAUSED = auto()
    """It is fetched again at a certain time: it was refused, failed, or is throttled."""
    FENCED = auto()
    """Its leader epoch or this broker's registration is over; the image will show its successor."""
    ENDED = auto()
    """It is not followed any more. Events that come late change nothing."""


DUE, FETCHING, APPENDING, WRITING, ASKING_RANGE, TRUNCATING, PAUSED, FENCED, ENDED = FetchState

NEXT_STATES: Final[Mapping[FetchState, tuple[FetchState, ...]]] = {
    DUE: (FETCHING, WRITING, ENDED),  # WRITING: records of a former leader epoch are not written
    FETCHING: (
        APPENDING,
        FETCHING,  # named again: in a new session, or to report its log start
        ASKING_RANGE,
        TRUNCATING,
        PAUSED,
        FENCED,
        DUE,  # the connection was lost, or its log is not what it was when it was named
        ENDED,
    ),
    APPENDING: (DUE, WRITING, TRUNCATING, PAUSED, ENDED),
    WRITING: (DUE, PAUSED, ENDED),
    ASKING_RANGE: (TRUNCATING, PAUSED, DUE, ENDED),  # DUE: the connection was lost
    TRUNCATING: (DUE, APPENDING, PAUSED, ENDED),
    PAUSED: (DUE, PAUSED, ENDED),  # PAUSED: it is throttled, still or by now
    FENCED: (ENDED,),
    ENDED: (),
}
"""What may follow each state, the usual one first."""

for _state, _after in NEXT_STATES.items():
    _state.after = _after


class FollowedLog(Protocol):
    """The ends of a follower's log. written_end_offset: everything below it is in the files."""

    @property
    def epochs(self) -> LeaderEpochs: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def written_end_offset(self) -> int: ...


class FollowedReplica(Protocol):
    """A replica for as long as it has one leader in one leader epoch.

    lag: committed records that it still lacked after the leader's last response, -1 before the
    first.
    """

    @property
    def topic_id(self) -> bytes: ...
    @property
    def index(self) -> int: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def lag(self) -> int: ...
    @property
    def log(self) -> FollowedLog: ...


R = TypeVar("R", bound=FollowedReplica)


class PartitionFetch(Generic[R]):
    """The copying of one replica.

    asked: the fields of the last request, None unless it is FETCHING. until_s: the end of its
    pause, while PAUSED. pause_s: the length of its next pause. is_ahead: its log or its leader's
    records have leader epochs above its leader's, and that was reported. row: to be applied when
    its log starts elsewhere (TRUNCATING), None if there is none.
    """

    __slots__ = (
        "asked",
        "is_ahead",
        "key",
        "pause_s",
        "replica",
        "request",
        "row",
        "state",
        "until_s",
    )

    def __init__(self, replica: R) -> None:
        self.key = (replica.topic_id, replica.index)
        self.replica = replica
        self.state = DUE
        self.asked: NextFetch | None = None
        self.until_s = 0.0
        self.pause_s = PAUSE_S_MIN
        self.is_ahead = False
        self.row: Row | None = None
        self.request = FetchRequest.FetchPartition(
            partition=replica.index, current_leader_epoch=replica.leader_epoch
        )

    @property
    def is_ended(self) -> bool:
        """Whether the replica is not followed any more in this leader epoch."""
        return self.state is ENDED

    def enter(self, state: FetchState) -> None:
        """Change the state, by `NEXT_STATES`."""
        assert state in self.state.after, f"{self.state.name} to {state.name}"
        self.state = state
        self.asked = None

    def ask(self, bytes_max: int) -> FetchRequest.FetchPartition:
        """Its row in the request that is sent now; the response is compared with it.

        bytes_max: of the records in the response. The next call changes the same object.
        """
        self.enter(FETCHING)
        self.asked = asked = self.next()
        request = self.request
        request.fetch_offset = asked.offset
        request.last_fetched_epoch = asked.last_fetched_epoch
        request.log_start_offset = self.replica.log.log_start_offset
        request.partition_max_bytes = bytes_max
        return request

    def next(self) -> NextFetch:
        """The fields of a request for the current state of the log."""
        replica = self.replica
        return next_fetch(replica.log.epochs, replica.log.log_end_offset, replica.leader_epoch)

    def take_pause(self, s_max: float) -> float:
        """Return the next pause, in seconds. The next pause is twice as long, s_max at most."""
        pause_s = self.pause_s
        self.pause_s = min(2 * pause_s, s_max)
        return pause_s

    def succeeded(self) -> None:
        """Records were appended: the cause of pauses is over."""
        self.pause_s = PAUSE_S_MIN
        self.is_ahead = False
