"""Talks with one broker in which strings are not UTF-8.

Each yields outcomes that are equal for two brokers with the same behaviour.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from logfleet.wire import messages as m

from e2e.compare.talks.clients import fit
from e2e.compare.talks.talker import Talker
from e2e.harness.wire_connection import WireConnection

Outcomes = Iterator[object]
TEXTS = (
    b"\xff",
    b"a\xe2\x82b",
    b"\xf0\x9f\x98",
    b"\xc0\x80",
    b"\xe0\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xed\xa0\x80",
    b"\xed\xb0\x80x",
    b"\xed\xa0",
    b"\xed\xa0\x80\xed\xb0\x80",
)
STAND_IN = "~"
"""Character that stands for a byte of such a text until the request is encoded."""


class Speaker:
    """Sends requests in which STAND_INs stand for the bytes of a text, on its own connection."""

    def __init__(self, talker: Talker, text: bytes) -> None:
        self.text = STAND_IN * len(text)
        self._bytes = text
        self._talker = talker

    def ask(self, request: msgspec.Struct, version: int) -> Any:
        """Return the response; the client id is the text."""

        def rewritten(frame: bytes) -> bytes:
            return frame.replace(self.text.encode(), self._bytes)

        with WireConnection(self._talker.port, self.text) as connection:
            connection.send(fit(request, version), version, rewritten)
            return connection.receive(type(request), version)


def names_of_topics(talker: Talker, version: int) -> Outcomes:
    for text in TEXTS:
        speaker = Speaker(talker, text)
        kind = m.MetadataRequest.MetadataRequestTopic
        (topic,) = speaker.ask(m.MetadataRequest(topics=[kind(name=speaker.text)]), version).topics
        yield text, topic.error_code, topic.name


def messages(talker: Talker, version: int) -> Outcomes:
    """An error message that contains the name."""
    for text in TEXTS:
        speaker = Speaker(talker, text)
        new = m.CreateTopicsRequest.CreatableTopic(
            name=speaker.text, num_partitions=1, replication_factor=1
        )
        request = m.CreateTopicsRequest(topics=[new], timeout_ms=30_000)
        (topic,) = speaker.ask(request, version).topics
        yield text, topic.error_code, topic.name, topic.error_message


def members(talker: Talker, version: int) -> Outcomes:
    """The member id that the coordinator assigns begins with the client id."""
    for text in TEXTS:
        speaker = Speaker(talker, text)
        group = f"text-members-{version}-{text.hex()}"
        talker.call(m.FindCoordinatorRequest(coordinator_keys=[group]), 6)
        kind = m.JoinGroupRequest.JoinGroupRequestProtocol
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[kind(name=speaker.text, metadata=b"m")],
        )
        answer = speaker.ask(request, version)
        (row,) = talker.call(m.DescribeGroupsRequest(groups=[group]), 5).groups
        yield (
            text,
            answer.error_code,
            answer.protocol_name,
            answer.member_id[: -len("-8d8ac610-566d-4ef0-9c22-186b2a5ed793")],
            [member.client_id for member in row.members],
        )


def groups(talker: Talker, version: int) -> Outcomes:
    """Texts that decode to the same string share one group's offsets."""
    topic = f"text-groups-{version}"
    talker.make_topic(topic)
    talker.call(m.FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    for offset, text in enumerate(TEXTS):
        speaker = Speaker(talker, text)
        kind = m.OffsetCommitRequest
        row = kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=speaker.text
        )
        rows = kind.OffsetCommitRequestTopic(name=topic, partitions=[row])
        request = kind(group_id=speaker.text, generation_id_or_member_epoch=-1, topics=[rows])
        answer = speaker.ask(request, version)
        yield text, answer.topics[0].partitions[0].error_code
        for other in TEXTS:
            reader = Speaker(talker, other)
            asked = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
            found = reader.ask(m.OffsetFetchRequest(group_id=reader.text, topics=[asked]), 7)
            (one,) = found.topics[0].partitions
            yield text, other, one.error_code, one.committed_offset, one.metadata


TALKS: dict[str, tuple[Callable[[Talker, int], Outcomes], tuple[int, ...]]] = {
    "topics": (names_of_topics, (1, 12)),
    "messages": (messages, (2, 7)),
    "members": (members, (3, 6)),
    "groups": (groups, (7, 8)),
}
"""Name -> the talk, and its versions: with two-byte string lengths, and with compact strings."""
