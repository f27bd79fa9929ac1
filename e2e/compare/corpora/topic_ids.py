"""Talks about topics by id (KIP-516) with one broker.

Each yields outcomes that are equal for two brokers with the same behaviour.
"""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m

from e2e.compare.corpora.batches import now_ms
from e2e.compare.talks.clients import fit
from e2e.compare.talks.talker import READY_WITHIN_S, Talker
from e2e.harness.wire_connection import Disconnected

Outcomes = Iterator[object]
TAG = ""
ZERO = bytes(16)
UNKNOWN = bytes(15) + b"\x07"
COMMIT_BY_ID_SINCE = 10
NO_NAME_SINCE = 10


class Ids:
    """Sends requests to one broker.

    In its responses, ids are replaced with the talk's names for them.
    """

    def __init__(self, talker: Talker, **known: bytes) -> None:
        self._talker = talker
        self.known = {ZERO: "zero", UNKNOWN: "unknown"} | {id_: name for name, id_ in known.items()}

    def ask(self, request: msgspec.Struct, version: int) -> object:
        """Return the response, or "closed"."""
        try:
            answer = self._talker.call(fit(copy.deepcopy(request), version), version)
        except Disconnected:
            self._talker.reconnect()
            return "closed"
        return self._named(answer)

    def _named(self, value: Any) -> Any:
        """Return the response as plain data, with names for ids.

        Rows whose order Kafka leaves to hash tables are sorted.
        """
        if isinstance(value, list):
            rows = [self._named(each) for each in value]
            return sorted(rows, key=lambda row: str(row.get("topic_id"))) if _of_ids(rows) else rows
        if isinstance(value, bytes | memoryview):
            return self.known.get(bytes(value), f"{len(value)} bytes")
        if not isinstance(value, msgspec.Struct):
            return value
        return {
            name: self._named(getattr(value, name))
            for name in value.__struct_fields__
            if name not in {"cluster_id", "port"}
        }


def _of_ids(rows: list[Any]) -> bool:
    return bool(rows) and isinstance(rows[0], dict) and "topic_id" in rows[0]


def recreated(talker: Talker, name: str) -> tuple[bytes, bytes]:
    """Delete a topic and create it again; return both ids."""
    old = talker.make_topic(name)
    gone = m.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    talker.call(gone, 5)
    new = talker.make_topic(name)
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name)])
    end = time.monotonic() + READY_WITHIN_S
    while talker.call(asked, 12).topics[0].topic_id != new:
        assert time.monotonic() < end, f"{name} is still what it was"
        time.sleep(0.05)
    return old, new


def metadata(talker: Talker, version: int) -> Outcomes:
    name = f"{TAG}ids-metadata-{version}"
    old, new = recreated(talker, name)
    ids = Ids(talker, old=old, new=new)
    kind = m.MetadataRequest.MetadataRequestTopic
    # neither id nor name: UNKNOWN_SERVER_ERROR of Kafka from version 12 on, INVALID_REQUEST of ours
    for topics in (
        [kind(name=name)],
        [kind(topic_id=new, name=None)],
        [kind(topic_id=old, name=None)],
        [kind(topic_id=UNKNOWN, name=None)],
        [kind(topic_id=new, name=name)],
        [kind(topic_id=old, name=name)],
        [kind(topic_id=new, name="other")],
        [kind(topic_id=new, name=None), kind(name=name)],
        [kind(topic_id=new, name=None), kind(topic_id=new, name=None)],
        [kind(topic_id=UNKNOWN, name=None), kind(topic_id=old, name=None)],
    ):
        if version < NO_NAME_SINCE and any(topic.name is None for topic in topics):
            continue
        request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        yield [(each.name, ids.known[each.topic_id]) for each in topics], ids.ask(request, version)


def offsets(talker: Talker, version: int) -> Outcomes:
    """OffsetCommit and OffsetFetch of a group without members."""
    name, group = f"{TAG}ids-offsets-{version}", f"{TAG}ids-{version}"
    old, new = recreated(talker, name)
    ids = Ids(talker, old=old, new=new)
    kind = m.OffsetCommitRequest
    # makes the broker create the groups' topic
    talker.call(m.FindCoordinatorRequest(coordinator_keys=[group]), 6)

    def commit(*topics: tuple[str, bytes, int]) -> object:
        asked = [
            kind.OffsetCommitRequestTopic(
                name=named,
                topic_id=topic_id,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=5, committed_metadata="m"
                    )
                ],
            )
            for named, topic_id, partition in topics
        ]
        request = kind(group_id=group, generation_id_or_member_epoch=-1, topics=asked)
        return ids.ask(request, version)

    def fetch(*topics: tuple[str, bytes, int]) -> object:
        asked = m.OffsetFetchRequest.OffsetFetchRequestTopics
        row = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            topics=[
                asked(name=named, topic_id=topic_id, partition_indexes=[partition])
                for named, topic_id, partition in topics
            ],
        )
        return ids.ask(m.OffsetFetchRequest(groups=[row]), version)

    yield "new", commit((name, new, 0)), fetch((name, new, 0))
    yield "partition", commit((name, new, 9)), fetch((name, new, 9))
    if version >= COMMIT_BY_ID_SINCE:
        yield "old", commit((name, old, 0)), fetch((name, old, 0))
        yield "unknown", commit(("", UNKNOWN, 0)), fetch(("", UNKNOWN, 0))
        yield "zero", commit(("", ZERO, 0)), fetch(("", ZERO, 0))
        yield (
            "mixed",
            commit((name, new, 0), ("", UNKNOWN, 0)),
            fetch(("", UNKNOWN, 0), (name, new, 0), ("", old, 1)),
        )
    else:
        yield "unknown", commit(("no-such", ZERO, 0)), fetch(("no-such", ZERO, 0))
        yield "mixed", commit((name, ZERO, 0), ("no-such", ZERO, 0))
    row = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    yield "all", ids.ask(m.OffsetFetchRequest(groups=[row]), version)


def records(talker: Talker, version: int) -> Outcomes:
    """Produce and Fetch with the id of a recreated topic's former self, and with other ids."""
    old, new = recreated(talker, f"{TAG}ids-records-{version}")
    ids = Ids(talker, old=old, new=new)
    batch = bytes(build_batch([Record(b"k", b"v", now_ms())]))
    for topic_id in (new, old, UNKNOWN, ZERO):
        data = m.ProduceRequest.PartitionProduceData(records=batch)
        sent = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
        request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[sent])
        yield "produce", ids.known[topic_id], ids.ask(request, 13)
        row = m.FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
        asked = m.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[row])
        fetch = m.FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=[asked])
        yield "fetch", ids.known[topic_id], ids.ask(fetch, version)


TALKS: dict[str, tuple[Callable[[Talker, int], Outcomes], tuple[int, ...]]] = {
    "metadata": (metadata, (9, 10, 11, 12, 13)),
    "offsets": (offsets, (8, 9, 10)),
    "records": (records, (13, 18)),
}
"""Name -> the talk, and its versions of Metadata, of OffsetCommit and OffsetFetch, of Fetch."""
