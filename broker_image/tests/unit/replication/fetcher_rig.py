"""A fetcher without a broker: replicas of a few numbers, the product's session, and what it wants."""

from typing import Any

from logfleet.replication.fetcher import Fetcher
from logfleet.replication.leader_epochs import EpochStart, LeaderEpochs
from logfleet.replication.partition_fetch import PartitionFetch, Row
from logfleet.sessions.reader_session import ReaderSession
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import FetchResponse

BACKOFF_S = 0.2
TOPIC = b"topic-----------"


class Log:
    """A log of `end` records of leader epoch `epoch`, all written."""

    def __init__(self, end: int = 0, epoch: int = 3, start: int = 0) -> None:
        self.log_start_offset = start
        self.log_end_offset = self.written_end_offset = end
        starts = (EpochStart(LeaderEpoch(epoch), start),) if end > start else ()
        self.epochs = LeaderEpochs(starts)


class Replica:
    def __init__(self, index: int, log: Log, leader_epoch: int = 5) -> None:
        self.topic_id, self.index = TOPIC, index
        self.leader_epoch = LeaderEpoch(leader_epoch)
        self.lag = -1
        self.log = log


Fetch = PartitionFetch[Replica]


class Rig:
    """throttle_ms: what the quota answers for every replica."""

    def __init__(self) -> None:
        self.session = ReaderSession()
        self.throttle_ms = 0
        self.now_s = 100.0
        self.fetcher: Fetcher[Replica] = Fetcher(
            self.session, throttle_ms=lambda _: self.throttle_ms, backoff_s=BACKOFF_S
        )

    def assigned(self, index: int = 0, **log: int) -> Fetch:
        replica = Replica(index, Log(**log))
        self.fetcher.assigned(replica)
        return self.fetcher.partitions[TOPIC, index]

    def fetching(self, index: int = 0, **log: int) -> Fetch:
        """A fetch that a request has just named."""
        fetch = self.assigned(index, **log)
        self.request()
        return fetch

    def request(self) -> list[int]:
        """The indexes of the partitions that a request names now."""
        named, _ = self.session.take()
        for key in named:
            self.fetcher.partitions[key].ask(1000)
        return [index for _, index in named]

    def received(self, fetch: Fetch, **fields: Any) -> Any:
        return self.fetcher.received(fetch.key, row(fetch.key[1], **fields), self.now_s)

    @property
    def in_session(self) -> set[int]:
        """The indexes of the partitions that the leader is to have in the session."""
        return {index for _, index in {*self.session._held, *self.session._unnamed}}


def row(index: int = 0, **fields: Any) -> Row:
    diverging = fields.pop("diverging", None)
    if diverging is not None:
        epoch, end_offset = diverging
        fields["diverging_epoch"] = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    defaults = {"high_watermark": 0, "log_start_offset": 0, "records": b""}
    return FetchResponse.PartitionData(partition_index=index, **{**defaults, **fields})
