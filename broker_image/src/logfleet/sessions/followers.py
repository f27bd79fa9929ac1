"""What each follower asks this broker for at present: a leader's evidence that its followers still follow it.

A fetch of a session names only what changed (KIP-227), so the newest fetch of a follower says something of each partition of its
session. A follower that follows another leader, or leads itself, takes the partition out of the session first.
"""

from collections.abc import Mapping

from logfleet.sessions.fetch_session import FetchSession, Key
from logfleet.wire.messages import FetchRequest

_Asked = Mapping[Key, FetchRequest.FetchPartition]


class _Contact:
    """The newest fetch of one broker. session: None if it named all that it wants in `wanted`."""

    __slots__ = ("broker_epoch", "fetched_ms", "session", "wanted")

    def __init__(self, broker_epoch: int, fetched_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.fetched_ms = fetched_ms
        self.session: FetchSession | None = None
        self.wanted: _Asked = {}

    def asked(self, key: Key) -> FetchRequest.FetchPartition | None:
        """How it asks for a partition, None if it does not."""
        if self.session is None:
            return self.wanted.get(key)
        partition = None if self.session.is_closed else self.session.partitions.get(key)
        return None if partition is None else partition.wanted


class FollowerFetches:
    """The newest fetch of each follower; one entry for each broker id."""

    def __init__(self) -> None:
        self._contacts: dict[int, _Contact] = {}

    def fetched(
        self,
        broker_id: int,
        broker_epoch: int,
        session: FetchSession | None,
        wanted: _Asked,
        now_ms: int,
    ) -> None:
        """A follower fetches, by a session or, with None, all of `wanted`. now_ms: monotonic."""
        contact = self._contacts.get(broker_id)
        if contact is None:
            contact = self._contacts[broker_id] = _Contact(broker_epoch, now_ms)
        contact.broker_epoch, contact.fetched_ms = broker_epoch, now_ms
        contact.session, contact.wanted = session, wanted

    def follows(
        self, broker_id: int, broker_epoch: int, key: Key, leader_epoch: int, since_ms: int
    ) -> bool:
        """Whether this registration has fetched since then, and asks for the partition (topic id, index) in that leader epoch."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.broker_epoch != broker_epoch or contact.fetched_ms < since_ms:
            return False
        asked = contact.asked(key)
        return asked is not None and asked.current_leader_epoch == leader_epoch
