"""What the nodes of a fleet tell clients of leaders and replicas, asked one by one: a change is done once each of them says so.

They are asked for a few partitions at a time, from the first on that has not changed yet, so that being asked costs them little.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from logfleet.wire.messages import DescribeTopicPartitionsRequest, MetadataRequest

from e2e.harness.wire_connection import Disconnected, WireConnection

PATIENCE_S = 300.0
POLL_S = 0.02
AT_ONCE = 200
"""Partitions asked for in one request."""


class NotSeen(AssertionError):
    """What was waited for is not told in time."""


class View:
    """Of the nodes that listen on these ports."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)

    def controller(self) -> int:
        return int(_metadata(self._ports[0]).controller_id)

    def until_there(self, nodes: int) -> None:
        """Every node knows of so many."""
        for port in self._ports:
            _until(lambda: len(_metadata(port).brokers) == nodes, f"{nodes} nodes on port {port}")  # noqa: B023 - called here

    def until_whole(self, topics: Iterable[str], replicas: int) -> None:
        """All partitions are led, with so many replicas in sync."""

        def whole(partition: Any) -> bool:
            return partition.leader_id >= 0 and len(partition.isr_nodes) == replicas

        self._until_all(topics, whole, f"{replicas} replicas in sync")

    def until_led_by(self, topics: Iterable[str], leaders: Iterable[int]) -> None:
        """All partitions are led by one of these."""
        ids = frozenset(leaders)
        self._until_all(topics, lambda each: each.leader_id in ids, f"a leader of {set(ids)}")

    def _until_all(self, topics: Iterable[str], holds: Callable[[Any], bool], what: str) -> None:
        for topic in topics:
            for port in self._ports:
                progress = Progress(holds)
                _until(lambda: _advanced(port, topic, progress), f"{topic}: {what} on port {port}")  # noqa: B023 - called here


class Progress:
    """Partitions of a topic for which something holds, from the first on. index: of the first for which it was not seen yet."""

    def __init__(self, holds: Callable[[Any], bool]) -> None:
        self.index = 0
        self._holds = holds

    def sees(self, answer: Any) -> bool:
        """Look at an answer to what was asked from `index` on; whether it holds for all there are."""
        (topic,) = answer.topics
        if topic.error_code:
            return False
        for partition in topic.partitions:
            if partition.partition_index != self.index or not self._holds(partition):
                return False
            self.index += 1
        return answer.next_cursor is None and self.index > 0


def _advanced(port: int, topic: str, progress: Progress) -> bool:
    """Ask on while there is progress; whether it is at the end."""
    while True:
        index = progress.index
        if progress.sees(_partitions(port, topic, index)):
            return True
        if progress.index == index:
            return False


def _metadata(port: int) -> Any:
    with WireConnection(port) as connection:
        return connection.call(MetadataRequest(topics=[]), 12)


def _partitions(port: int, topic: str, first: int) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)],
        response_partition_limit=AT_ONCE,
        cursor=DescribeTopicPartitionsRequest.Cursor(topic_name=topic, partition_index=first),
    )
    with WireConnection(port) as connection:
        return connection.call(request, 0)


def _until(holds: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError, Disconnected):  # a node that starts
            if holds():
                return
        if time.monotonic() > give_up_s:
            raise NotSeen(f"no {what} after {PATIENCE_S:.0f} s")
        time.sleep(POLL_S)
