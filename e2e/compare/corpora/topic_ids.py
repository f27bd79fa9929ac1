"""Topics by id (KIP-516): ids of topics that were deleted and made again, and ids of none."""

from typing import Final

from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("topic-ids", exact_texts=True)
ZERO: Final = bytes(16)
UNKNOWN: Final = bytes(15) + b"\x07"
COMMIT_BY_ID_SINCE: Final = 10
NO_NAME_SINCE: Final = 10


def made_again(side: Side) -> tuple[MadeTopic, MadeTopic]:
    """A topic that is gone, and another of its name."""
    old = side.topic()
    side.get(r.delete(old.name))
    side.await_changes()
    new = side.topic()
    side.await_changes()
    side.call_id(old.id, "<id of the former one>")
    side.call_id(UNKNOWN, "<id of none>")
    return old, new


@CORPUS.versions("Metadata", only=(9, 10, 11, 12, 13))
def metadata(side: Side, version: int) -> None:
    """Neither id nor name: UNKNOWN_SERVER_ERROR of Kafka from version 12 on, INVALID_REQUEST of ours."""
    old, new = made_again(side)
    kind = m.MetadataRequest.MetadataRequestTopic
    for topics in (
        [(ZERO, new.name)],
        [(new.id, None)],
        [(old.id, None)],
        [(UNKNOWN, None)],
        [(new.id, new.name)],
        [(old.id, new.name)],
        [(new.id, "other")],
        [(new.id, None), (ZERO, new.name)],
        [(new.id, None), (new.id, None)],
        [(UNKNOWN, None), (old.id, None)],
    ):
        if version >= NO_NAME_SINCE or all(name is not None for _, name in topics):
            rows = [kind(topic_id=topic_id, name=name) for topic_id, name in topics]
            side.ask(m.MetadataRequest(topics=rows, allow_auto_topic_creation=False), version)


@CORPUS.versions("OffsetCommit", only=(8, 9, 10))
def offsets(side: Side, version: int) -> None:
    """OffsetCommit and OffsetFetch of a group without members."""
    old, new = made_again(side)
    group, unknown = f"{side.prefix}group", MadeTopic("", UNKNOWN)

    def commit(*topics: MadeTopic, index: int = 0) -> None:
        rows = [r.commit(group, each, 5, index=index, metadata="m").topics[0] for each in topics]
        kind = m.OffsetCommitRequest
        request = kind(group_id=group, generation_id_or_member_epoch=-1, topics=rows)
        side.ask(request, version)

    def fetch(*topics: MadeTopic, indexes: tuple[int, ...] = (0,)) -> None:
        request = r.committed(group, topics[0], indexes=indexes)
        for each in topics[1:]:
            more = r.committed(group, each, indexes=indexes).groups[0].topics or []
            assert request.groups[0].topics is not None
            request.groups[0].topics += more
        side.ask(request, version)

    for index in (0, 9):
        commit(new, index=index)
        fetch(new, indexes=(index,))
    if version >= COMMIT_BY_ID_SINCE:
        for each in (old, unknown, MadeTopic("", ZERO)):
            commit(each)
            fetch(each)
        commit(new, unknown)
        fetch(unknown, new, old)
    else:
        nowhere = MadeTopic("no-such", ZERO)
        commit(nowhere)
        fetch(nowhere)
        commit(new, nowhere)
    side.ask(r.committed(group, None), version)


@CORPUS.versions("Fetch", only=(13, 18))
def records(side: Side, version: int) -> None:
    """Produce and Fetch with the id of a topic's former self, and with other ids."""
    old, new = made_again(side)
    for topic in (new, old, MadeTopic("", UNKNOWN), MadeTopic("", ZERO)):
        side.ask(r.produce(topic, r.batch()), 13)
        side.ask(r.fetch_rows(topic, [r.fetch_row()], session_epoch=-1), version)
