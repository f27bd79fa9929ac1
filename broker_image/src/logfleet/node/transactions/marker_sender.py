"""Sends markers of decided transactions to the leaders of their partitions, until all have them.

`logfleet.transactions.markers` keeps which partitions are left, and groups them by broker. To each
other broker there is one connection, on which nothing but markers is sent: they must not wait
behind fetches. One request is in flight on it; all that comes due meanwhile goes with the next one.
Markers for partitions that this broker leads are appended without a request. What is refused or not
answered is sent again when leaders change, and after a pause.

Before markers leave, the lease is checked: a broker that was stopped for longer than it lasts would
else send the markers of a coordinator that has a successor.

Source: Kafka's TransactionMarkerChannelManager.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol

import structlog

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.config.broker import BrokerConfig
from logfleet.io.clock import Clock
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.node.dispatch import Tenure
from logfleet.node.transactions.marker_appends import MarkerAppends, MarkerCall, WritableMarker
from logfleet.node.world import Connect
from logfleet.store.loader import Subscription
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.transactions.markers import NO_LEADER, MarkerAnswer, MarkerBook, MarkersDue
from logfleet.transactions.state import TopicPartition
from logfleet.types import NO_BROKER_EPOCH, LeaderEpoch
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

log = structlog.get_logger(__name__)

RETRY_S_MIN: Final = 0.05
RETRY_S_MAX: Final = 1.0
"""Bounds of the pause before markers are sent again; it doubles until some are written."""
ANSWER_MS: Final = 5_000
"""Time beyond request.timeout.ms, within which the other broker answers whatever happens."""
STUCK_MS: Final = 10_000
"""Markers that are not written for so long are reported."""
REPORT_PAUSE_MS: Final = 1_000
"""Least time between two such reports: each checks all markers that wait."""


class Owner(Protocol):
    """A coordinator whose transactions end, while it leads its partition in one leader epoch."""

    def markers_written(self, answer: MarkerAnswer, /) -> None:
        """Partitions have their marker, are gone, or refuse it for good."""


class MarkerSender:
    """Gets the markers written that are due at this broker's coordinators.

    appends: writes those for partitions that are led here. image: the newest. lease: by which this
    broker leads; None while it leads nothing. decisions: get what is stuck. spawn: starts a task
    that ends with the broker. connect: opens a connection.
    """

    def __init__(
        self,
        config: BrokerConfig,
        appends: MarkerAppends,
        *,
        clock: Clock,
        image: Callable[[], ClusterImage],
        lease: Callable[[], Tenure | None],
        decisions: Decisions,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        connect: Connect = Connection.connect,
    ) -> None:
        self.book = MarkerBook(self._leader_of)
        self.config = config
        self.spawn = spawn
        self.connect = connect
        self._appends = appends
        self._clock = clock
        self._image = image
        self._lease = lease
        self._decisions = decisions
        self._links: dict[int, _Link] = {}
        self._answers: list[MarkerAnswer] = []
        self._will_send = False
        self._pause_s = RETRY_S_MIN
        self._retry: asyncio.TimerHandle | None = None
        self._report: asyncio.TimerHandle | None = None
        self._reported_ms = -1

    @property
    def unknown_destinations(self) -> int:
        """Markers for partitions that have no leader (UnknownDestinationQueueSize)."""
        return self.book.leaderless

    def due(self, owner: Owner, epoch: LeaderEpoch, markers: Iterable[MarkersDue]) -> None:
        """Send them in the next step of the loop, with all that come due in this one.

        epoch: of the coordinator. It gets its answers in later steps.
        """
        now_ms = self._clock.monotonic_ms()
        for each in markers:
            self._answers += self.book.due(owner, epoch, each, now_ms)
        if self._report is None:
            self._report_within(STUCK_MS)
        self._send_soon()

    def drop(self, owner: Owner) -> None:
        """The coordinator has stopped: send nothing more of its transactions."""
        self.book.forget(owner)

    async def run(self, subscription: Subscription) -> None:
        """Follow the leaders of partitions, until cancelled; then close all connections."""
        try:
            while True:
                _, changes = await subscription.next()
                if changes.everything or changes.brokers or changes.topics:
                    for link in self._links.values():
                        link.check_address()
                    self._release()
        finally:
            for timer in (self._retry, self._report):
                if timer is not None:
                    timer.cancel()
            for link in self._links.values():
                link.close()

    # -- sending

    def _send_soon(self) -> None:
        if not self._will_send:
            self._will_send = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._will_send = False
        answers, self._answers = self._answers, []
        for answer in answers:
            owner: Any = answer.owner
            owner.markers_written(answer)
        for broker_id in self.book.brokers():
            if broker_id == self.config.node_id:
                self._append_here()
                continue
            link = self._links.get(broker_id)
            if link is None:
                link = self._links[broker_id] = _Link(self, broker_id)
            link.send()
        if self.book.needs_release and self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(self._pause_s, self._retry_now)
            self._pause_s = min(2 * self._pause_s, RETRY_S_MAX)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """See LeaderOf. A broker that is not registered leads nothing."""
        image = self._image()
        topic = image.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        leader = topic.partitions[partition.partition].leader
        return leader if leader in image.brokers else NO_LEADER

    def _append_here(self) -> None:
        if not self.may_send():
            self.lost(self.config.node_id)
            return
        markers = self.book.take(self.config.node_id)
        if not markers:
            return
        call = self._appends.append(markers)
        if call.waiting:
            call.on_done = partial(self._appended_here, call)
        else:
            self._appended_here(call)

    def _appended_here(self, call: MarkerCall) -> None:
        self.answered(self.config.node_id, call.response())

    def _retry_now(self) -> None:
        self._retry = None
        self._release()

    def _release(self) -> None:
        self._answers += self.book.release()
        self._send_soon()

    # -- what links need

    def may_send(self) -> bool:
        """Whether no other broker can lead by now what this one leads (`dispatch.answered_at`)."""
        lease = self._lease()
        return lease is not None and self._clock.boot_s() < lease.deadline_s

    def broker(self, broker_id: int) -> Broker | None:
        """The broker as it is registered in the newest image."""
        return self._image().brokers.get(broker_id)

    def take(self, broker_id: int) -> list[WritableMarker]:
        """The next request for the broker; empty if nothing waits for it."""
        return self.book.take(broker_id)

    def answered(self, broker_id: int, response: WriteTxnMarkersResponse) -> None:
        """The broker has answered the request that was taken."""
        answers = self.book.answered(broker_id, response)
        if answers:
            self._pause_s = RETRY_S_MIN
        self._answers += answers
        self._send_soon()

    def lost(self, broker_id: int) -> None:
        """The broker has not answered, or can be sent nothing now."""
        self.book.lost(broker_id)
        self._send_soon()

    # -- reports

    def _report_within(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._report = loop.call_later(delay_ms / 1000, self._report_stuck)

    def _report_stuck(self) -> None:
        """Report partitions for which markers wait too long: each once for all that came due."""
        self._report = None
        stuck_ms = self._clock.monotonic_ms() - STUCK_MS
        stuck: dict[tuple[TopicPartition, str], list[str]] = {}
        delay_ms: int | None = None
        for each in self.book.waiting():  # those of each coordinator in order, not all of them
            if each.since_ms > stuck_ms:
                left_ms = each.since_ms - stuck_ms
                delay_ms = left_ms if delay_ms is None else min(delay_ms, left_ms)
            elif each.since_ms > self._reported_ms:
                stuck.setdefault((each.partition, each.why), []).append(each.key.transactional_id)
        if delay_ms is not None:
            self._report_within(max(delay_ms, REPORT_PAUSE_MS))
        self._reported_ms = stuck_ms
        for (partition, why), ids in stuck.items():
            facts = {"transactions": len(ids), "transactional_id": ids[0]}
            log.warning(
                "transaction_markers_stuck",
                topic=partition.topic,
                partition=partition.partition,
                reason=why,
                **facts,
            )
            cause = f"transactions do not end at the partition: {why}"
            self._decisions.record(Decision(Kind.MARKERS_STUCK, cause, *partition, facts=facts))


class _Link:
    """The connection to one other broker, and the one request on it."""

    def __init__(self, sender: MarkerSender, broker_id: int) -> None:
        self._sender = sender
        self._broker_id = broker_id
        self._connection: Connection | None = None
        self._epoch = NO_BROKER_EPOCH
        self._is_sending = False

    def close(self) -> None:
        """End the connection, and with it the request on it."""
        if self._connection is not None:
            self._connection.close()

    def check_address(self) -> None:
        """Wait for no answer of a process that is this broker no more."""
        broker = self._sender.broker(self._broker_id)
        if broker is None or broker.epoch != self._epoch:
            self.close()

    def send(self) -> None:
        """Send what waits for the broker, and then what comes due meanwhile."""
        if not self._is_sending:
            self._is_sending = True
            self._sender.spawn(self._send_all())

    async def _send_all(self) -> None:
        try:
            while await self._exchange():
                pass
        except ClientError as error:
            # whatever it is: the next request gets a new connection, with versions of then
            self.close()
            log.warning("markers_not_answered", broker=self._broker_id, reason=str(error))
            self._sender.lost(self._broker_id)
        finally:
            self._is_sending = False

    async def _exchange(self) -> bool:
        """Send one request, take its answer; whether there may be another. Raises ClientError."""
        sender, broker_id = self._sender, self._broker_id
        connection = await self._connected()
        if connection is None or not sender.may_send():
            sender.lost(broker_id)
            return False
        markers = sender.take(broker_id)
        if not markers:
            return False
        response = await connection.submit(
            WriteTxnMarkersRequest(markers=markers),
            WriteTxnMarkersResponse,
            timeout_ms=sender.config.request_timeout_ms + ANSWER_MS,
        )
        sender.answered(broker_id, response)
        return True

    async def _connected(self) -> Connection | None:
        """A connection that sends a request at once; None if the broker is not registered.

        Raises ClientError.
        """
        connection = self._connection
        if connection is None or connection.lost is not None:
            sender = self._sender
            broker = sender.broker(self._broker_id)
            listener = sender.config.inter_broker_listener_name
            address = None if broker is None else broker.listener(listener)
            if broker is None or address is None:
                return None
            self._epoch = broker.epoch
            client_id = f"broker-{sender.config.node_id}-markers"
            connection = await sender.connect(address.host, address.port, client_id)
            self._connection = connection
            self.check_address()
        await connection.writable()
        await connection.unthrottled()
        return connection
