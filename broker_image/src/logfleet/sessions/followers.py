"""Records which partitions each follower fetches: evidence that it follows this leader.

A fetch of a session names only changes (KIP-227), so a follower's newest fetch covers each
partition of its session. A follower that follows another leader, or leads itself, removes the
partition from the session first. A follower that got an error removes the partition as well and
names it again after a pause, so what was named lately counts, too.
"""

from collections.abc import Mapping
from typing import Final

from logfleet.sessions.fetch_session import FetchSession, Key
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.messages import FetchRequest

NAMED_MAX: Final = 10_000
"""Names older than NAMED_FOR_MS are kept until there are this many."""
NAMED_FOR_MS: Final = 5_000
_Asked = Mapping[Key, FetchRequest.FetchPartition]


class _Contact:
    """The newest fetch of one broker.

    session: None if it has none. named: leader epoch and time of the partitions named lately.
    """

    __slots__ = ("broker_epoch", "fetched_ms", "named", "session")

    def __init__(self) -> None:
        self.begin(BrokerEpoch(0))

    def begin(self, broker_epoch: BrokerEpoch) -> None:
        """Start again with this broker epoch."""
        self.broker_epoch = broker_epoch
        self.fetched_ms = 0
        self.session: FetchSession | None = None
        self.named: dict[Key, tuple[int, int]] = {}

    def name(self, wanted: _Asked, now_ms: int) -> None:
        """Record the partitions that the newest fetch names."""
        if len(self.named) > NAMED_MAX:
            oldest_ms = now_ms - NAMED_FOR_MS
            self.named = {key: each for key, each in self.named.items() if each[1] >= oldest_ms}
        for key, asked in wanted.items():
            self.named[key] = (asked.current_leader_epoch, now_ms)

    def follows(self, key: Key, leader_epoch: LeaderEpoch, since_ms: int) -> bool:
        session = self.session
        partition = None if session is None or session.is_closed else session.partitions.get(key)
        if partition is not None and partition.wanted.current_leader_epoch == leader_epoch:
            return self.fetched_ms >= since_ms
        epoch, named_ms = self.named.get(key, (-1, 0))
        return epoch == leader_epoch and named_ms >= since_ms


class FollowerFetches:
    """The newest fetch of each follower; one entry for each broker id."""

    def __init__(self) -> None:
        self._contacts: dict[int, _Contact] = {}

    def fetched(
        self,
        broker_id: int,
        broker_epoch: BrokerEpoch,
        session: FetchSession | None,
        wanted: _Asked,
        now_ms: int,
    ) -> None:
        """Record a fetch: a follower fetches what `wanted` names and the rest of its session.

        now_ms: monotonic.
        """
        contact = self._contacts.get(broker_id)
        if contact is None:
            contact = self._contacts[broker_id] = _Contact()
        if contact.broker_epoch != broker_epoch:
            contact.begin(broker_epoch)
        contact.session, contact.fetched_ms = session, now_ms
        if wanted:
            contact.name(wanted, now_ms)

    def follows(
        self,
        broker_id: int,
        broker_epoch: BrokerEpoch,
        key: Key,
        leader_epoch: LeaderEpoch,
        since_ms: int,
    ) -> bool:
        """Whether this registration has fetched the partition in that leader epoch since then.

        key: topic id and index.
        """
        contact = self._contacts.get(broker_id)
        return (
            contact is not None
            and contact.broker_epoch == broker_epoch
            and contact.follows(key, leader_epoch, since_ms)
        )
