"""A sender of markers on broker 1, coordinators that it answers, and an image that a test writes."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace

from logfleet.metadata.image_builder import Changes
from logfleet.node.transactions.marker_appends import MarkerAppends
from logfleet.node.transactions.marker_sender import MarkerSender
from logfleet.store.loader import Subscription
from logfleet.transactions.markers import MarkerAnswer, MarkerKey, MarkersDue
from logfleet.transactions.state import TV2, TopicPartition
from logfleet.types import LeaderEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from broker_image.tests.unit.node.handlers.conftest import Host

COORDINATOR_EPOCH = LeaderEpoch(4)
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_Row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class Coordinator:
    """written, refused: transactional id -> partitions, as "topic-0"."""

    def __init__(self) -> None:
        self.written: dict[str, set[str]] = {}
        self.refused: dict[str, ErrorCode] = {}

    def markers_written(self, answer: MarkerAnswer, /) -> None:
        name = answer.key.transactional_id
        self.written.setdefault(name, set()).update(f"{t}-{i}" for t, i in answer.written)
        if answer.refused is not None:
            self.refused[name] = answer.refused[1]


class NoOffsets:
    """Group coordinators of which none is loaded."""

    def takes_markers(self, *_: object) -> bool:
        return False

    def end_transactions(self, *_: object) -> bool:
        raise AssertionError("none takes markers")


class Rig:
    """host: broker 1, its partitions and its image. now_ms, boot_s: of the sender's clocks."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.monotonic_now = 0
        self.lease = SimpleNamespace(deadline_s=10.0)
        self.boot_now = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self.coordinator = Coordinator()
        self.subscription = Subscription()
        appends = MarkerAppends(
            host.partitions,
            NoOffsets(),
            clock=host,  # type: ignore[arg-type]
            timeout_s=30.0,
            storage_failed=host.storage_failed,
        )
        self.sender = MarkerSender(
            SimpleNamespace(  # type: ignore[arg-type]
                node_id=1, inter_broker_listener_name="PLAINTEXT", request_timeout_ms=5_000
            ),
            appends,
            clock=self,  # type: ignore[arg-type]
            image=lambda: host.image,
            lease=lambda: self.lease,
            decisions=host.decisions,
            spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)),
        )
        host.know_broker(1, "127.0.0.1", 1)

    def monotonic_ms(self) -> int:
        return self.monotonic_now

    def boot_s(self) -> float:
        return self.boot_now

    def due(
        self,
        name: str,
        *partitions: tuple[str, int],
        producer_id: int | None = None,
        owner: Coordinator | None = None,
    ) -> None:
        """A transaction of this id has committed."""
        key = MarkerKey(name, producer_id or ord(name[0]), ProducerEpoch(3))
        named = frozenset(TopicPartition(*each) for each in partitions)
        markers = MarkersDue(key, True, TV2, named)
        self.sender.due(owner or self.coordinator, COORDINATOR_EPOCH, [markers])

    def publish(self) -> None:
        """The sender learns that the image has changed."""
        self.subscription.publish(self.host.image, Changes(everything=True))

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()


def answer_to(
    request: WriteTxnMarkersRequest, errors: Iterable[tuple[str, int]] = ()
) -> WriteTxnMarkersResponse:
    """NONE for each partition but for those of `errors`: topic -> error."""
    by_topic = dict(errors)
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=marker.producer_id,
                topics=[
                    _Topic(
                        name=topic.name,
                        partitions=[
                            _Row(partition_index=each, error_code=by_topic.get(topic.name, 0))
                            for each in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def names_of(request: WriteTxnMarkersRequest) -> dict[int, list[str]]:
    """Producer id -> partitions."""
    return {
        marker.producer_id: [
            f"{topic.name}-{index}" for topic in marker.topics for index in topic.partition_indexes
        ]
        for marker in request.markers
    }
