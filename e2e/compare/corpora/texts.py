"""Strings that are not UTF-8: what comes back of them, and which of them are the same."""

from typing import Any, Final

import msgspec
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import Side

MEMBER_ID_REQUIRED_SINCE: Final = 4  # KIP-394
CORPUS: Final = Corpus("texts", exact_texts=True)
TEXTS: Final = (
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
STAND_IN: Final = "~"
"""Character that stands for a byte of such a text until the request is encoded."""


class Speaker:
    """Asks with STAND_INs for the bytes of a text, which is the client id, too."""

    def __init__(self, side: Side, text: bytes) -> None:
        self.text = STAND_IN * len(text)
        self._side, self._bytes = side, text

    def ask(self, request: msgspec.Struct, version: int) -> Any:
        def rewritten(frame: bytes) -> bytes:
            return frame.replace(self.text.encode(), self._bytes)

        on = f"{self.text}#{self._bytes.hex()}"
        self._side.send(request, version, on=on, rewritten=rewritten)
        return self._side.answer(request, version, on=on)


# with two-byte lengths of strings, and with compact strings


@CORPUS.versions("Metadata", only=(1, 12))
def names_of_topics(side: Side, version: int) -> None:
    for text in TEXTS:
        speaker = Speaker(side, text)
        speaker.ask(r.metadata(speaker.text), version)


@CORPUS.versions("CreateTopics", only=(2, 7))
def messages(side: Side, version: int) -> None:
    for text in TEXTS:
        speaker = Speaker(side, text)
        speaker.ask(r.create(r.creatable(speaker.text)), version)


@CORPUS.versions("JoinGroup", only=(3, 6))
def members(side: Side, version: int) -> None:
    """The member id that the coordinator assigns begins with the client id."""
    for text in TEXTS:
        speaker = Speaker(side, text)
        group = f"{side.prefix}{text.hex()}"
        request = r.join(
            group,
            protocols=[speaker.text],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        speaker.ask(request, version)
        if version < MEMBER_ID_REQUIRED_SINCE:
            # Later versions only reserve an id, and Kafka shows such a group a moment later.
            side.ask(m.DescribeGroupsRequest(groups=[group]), 5)


@CORPUS.versions("OffsetCommit", only=(7, 8))
def groups(side: Side, version: int) -> None:
    """Texts that decode to the same string share one group's offsets."""
    topic = side.topic()
    for offset, text in enumerate(TEXTS):
        speaker = Speaker(side, text)
        speaker.ask(r.commit(speaker.text, topic, offset, metadata=speaker.text), version)
        for other in TEXTS:
            reader = Speaker(side, other)
            reader.ask(r.committed(reader.text, topic), 7)
