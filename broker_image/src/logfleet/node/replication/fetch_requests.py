"""Sends a fetcher's requests to its leader over one connection.

With few records each request names one partition and each answer is about one: these are neither
encoded nor decoded whole (`logfleet.wire.single_fetch`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from logfleet.client.connection import Connection
from logfleet.config.throttle_keys import Side
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.node.replication.follower_host import FollowerHost
from logfleet.quotas.replication_quotas import ANSWER, SLICE
from logfleet.replication.partition_fetch import Key, PartitionFetch
from logfleet.sessions.reader_session import ReaderSession
from logfleet.wire.apis import api_of
from logfleet.wire.messages import FetchRequest, FetchResponse
from logfleet.wire.single_fetch import (
    VERSION,
    SingleFetch,
    client_of,
    decode_single_row,
    encode_single_fetch,
)

_API = api_of(FetchRequest)


class FetchRequests:
    """Sends the requests of one fetch session.

    fetches: of the partitions that it may name.
    """

    def __init__(
        self,
        host: FollowerHost,
        session: ReaderSession,
        fetches: Mapping[Key, PartitionFetch[FollowerPartition]],
        connection: Connection,
    ) -> None:
        self._host = host
        self._config = host.config
        self._session = session
        self._fetches = fetches
        self._connection = connection
        self._client = client_of(connection.client_id)
        self._knows_lone = connection.version(_API) == VERSION

    async def send(self, wait_ms: int) -> FetchResponse:
        """Request what the session has to name; the answer may take wait_ms. Raises ClientError."""
        key = self._session.take_only() if self._knows_lone else None
        if key is not None and not self._is_slow(self._fetches[key].replica):
            return await self._send_for_one(key, wait_ms)
        return await self._connection.request(
            self._request(wait_ms, key),
            FetchResponse,
            timeout_ms=self._config.replica_socket_timeout_ms,
        )

    async def _send_for_one(self, key: Key, wait_ms: int) -> FetchResponse:
        config, session = self._config, self._session
        wanted = self._fetches[key].ask(config.replica_fetch_max_bytes)
        fetch = SingleFetch(
            wait_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            session.id,
            session.epoch,
            *key,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
            wanted.partition_max_bytes,
            self._host.node_id,
            self._host.broker_epoch,
        )
        frame = await self._connection.exchange(
            _API,
            VERSION,
            partial(encode_single_fetch, fetch, client=self._client),
            timeout_ms=config.replica_socket_timeout_ms,
        )
        found = decode_single_row(frame)
        if found is None:
            return cast("FetchResponse", self._connection.decode(_API, VERSION, frame))
        _, lone, records = found
        row = FetchResponse.PartitionData(
            partition_index=lone.partition_index,
            high_watermark=lone.high_watermark,
            log_start_offset=lone.log_start_offset,
            records=records,
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=lone.topic_id, partitions=[row])
        return FetchResponse(session_id=lone.session_id, responses=[topic])

    def _request(self, wait_ms: int, only: Key | None) -> FetchRequest:
        """The next request of the session. only: its one key, if that was taken already."""
        named, forgotten = ([only], []) if only is not None else self._session.take()
        is_slow = False
        topics: dict[Any, FetchRequest.FetchTopic] = {}
        for topic_id, index in named:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
            fetch, bytes_max = self._fetches[topic_id, index], self._config.replica_fetch_max_bytes
            if self._is_slow(fetch.replica):
                bytes_max, is_slow = SLICE, True
            topic.partitions.append(fetch.ask(bytes_max))
        gone: dict[Any, FetchRequest.ForgottenTopic] = {}
        for topic_id, index in forgotten:
            old = gone.setdefault(
                topic_id, FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[])
            )
            old.partitions.append(index)
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._host.node_id, replica_epoch=self._host.broker_epoch
            ),
            max_wait_ms=0 if self._session.has_more else wait_ms,
            min_bytes=self._config.replica_fetch_min_bytes,
            max_bytes=self._config.replica_fetch_response_max_bytes if not is_slow else ANSWER,
            session_id=self._session.id,
            session_epoch=self._session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def _is_slow(self, partition: FollowerPartition) -> bool:
        """Whether it lags, by the last answer, and its copying is throttled.

        Then it is copied in slices, so that it blocks neither side's loop for long.
        """
        return bool(partition.lag) and self._host.throttle.concerns(
            Side.FOLLOWER, partition.topic, partition.index
        )
