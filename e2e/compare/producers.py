"""Transactional producers as cases have them: who they are, what they send, and how far their transactions are."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from logfleet.records.record import ProducerStamp
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.side import CaseBroken, MadeTopic, Side

ADDED_WITH_RECORDS_SINCE: Final = 12
"""Version of Produce (KIP-890); that of TxnOffsetCommit is 5."""
TV2_SINCE: Final = 5
"""Version of EndTxn."""
Partitions = Mapping[str, Sequence[int]]
"""Topic -> its partitions."""
Addition = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
UNKNOWN_PRODUCER: Final = 123_456_789
"""A producer id that nobody was given."""


class Who(NamedTuple):
    """A producer: its transactional id, and the pair that it was given."""

    id: str
    producer_id: int = -1
    epoch: int = -1

    def of_epoch(self, epoch: int) -> "Who":
        return self._replace(epoch=epoch)

    def stamp(self, sequence: int, *, transactional: bool = True) -> ProducerStamp:
        return ProducerStamp(self.producer_id, self.epoch, sequence, transactional=transactional)


# --- requests


def init(who: Who, *, timeout_ms: int = r.SESSION_MS) -> m.InitProducerIdRequest:
    """Continues with the pair, if there is one."""
    return m.InitProducerIdRequest(
        transactional_id=who.id,
        transaction_timeout_ms=timeout_ms,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
    )


def _topics(partitions: Partitions) -> list[Any]:
    kind = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return [kind(name=name, partitions=list(indexes)) for name, indexes in partitions.items()]


def add(who: Who, partitions: Partitions) -> m.AddPartitionsToTxnRequest:
    """As a client sends it, up to version 3."""
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=_topics(partitions),
    )


def of_broker(who: Who, partitions: Partitions, *, verify: bool = False) -> Addition:
    """One transaction of what brokers send, from version 4 on."""
    return Addition(
        transactional_id=who.id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        verify_only=verify,
        topics=_topics(partitions),
    )


def add_group(who: Who, group: str) -> m.AddOffsetsToTxnRequest:
    return m.AddOffsetsToTxnRequest(
        transactional_id=who.id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group,
    )


def commit_offsets(
    who: Who,
    group: str,
    offsets: Mapping[tuple[str, bytes], Mapping[int, int]],
    *,
    metadata: str | None = "note",
    **fields: Any,
) -> m.TxnOffsetCommitRequest:
    """offsets: of each topic (name and id) and partition. fields: member_id and the like."""
    kind = m.TxnOffsetCommitRequest
    topics = [
        kind.TxnOffsetCommitRequestTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                kind.TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
                for index, offset in rows.items()
            ],
        )
        for (name, topic_id), rows in offsets.items()
    ]
    usual: dict[str, Any] = {
        "transactional_id": who.id,
        "group_id": group,
        "producer_id": who.producer_id,
        "producer_epoch": who.epoch,
    }
    return kind(topics=topics, **(usual | fields))


def end(who: Who, *, commit: bool = True) -> m.EndTxnRequest:
    return m.EndTxnRequest(
        transactional_id=who.id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commit,
    )


def produce(
    who: Who, topic: MadeTopic, sequence: int = 0, *, index: int = 0, count: int = 1
) -> m.ProduceRequest:
    """Records `sequence` to `sequence + count - 1`."""
    sent = r.batch(count, first=sequence, producer=who.stamp(sequence))
    request = r.produce(topic, sent, index=index)
    request.transactional_id = who.id
    return request


def describe(*ids: str) -> m.DescribeTransactionsRequest:
    return m.DescribeTransactionsRequest(transactional_ids=list(ids))


def describe_producers(topic: str, *indexes: int) -> m.DescribeProducersRequest:
    kind = m.DescribeProducersRequest.TopicRequest
    return m.DescribeProducersRequest(topics=[kind(name=topic, partition_indexes=list(indexes))])


def marker(who: Who, partitions: Partitions, *, commit: bool = True, **fields: Any) -> Marker:
    """fields: coordinator_epoch, transaction_version."""
    kind = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic
    topics = [
        kind(name=name, partition_indexes=list(indexes)) for name, indexes in partitions.items()
    ]
    return Marker(
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        transaction_result=commit,
        topics=topics,
        **fields,
    )


# --- steps


def initialised(side: Side, name: str, version: int = 5, **fields: Any) -> Who:
    """Initialise a transactional id of the case's own; how it is answered is compared."""
    who = Who(f"{side.prefix}{name}")
    return again(side, who, version, **fields)


def again(side: Side, who: Who, version: int = 5, **fields: Any) -> Who:
    """As `initialised`, by another producer of that id. A transaction in progress is aborted."""
    answer = side.settle(init(Who(who.id), **fields), version)
    return Who(who.id, answer.producer_id, answer.producer_epoch)


def ended(side: Side, who: Who, version: int = 5, *, commit: bool = True) -> Who:
    """End the transaction, await its end, describe it; the producer of the next one."""
    answer = side.settle(end(who, commit=commit), version)
    await_end(side, who)
    side.ask(describe(who.id))
    if version < TV2_SINCE or answer.error_code:
        return who
    return Who(who.id, answer.producer_id, answer.producer_epoch)


def await_end(side: Side, *producers: Who) -> None:
    """Return when none of their transactions is decided and still lacks a marker."""
    asked = describe(*(who.id for who in producers))
    for _ in side.patiently(f"the ends of transactions of {producers}"):
        states = [row.transaction_state for row in side.get(asked).transaction_states]
        if not any(state.startswith("Prepare") for state in states):
            return


def await_state(side: Side, who: Who, state: str) -> None:
    """Return when the transaction is in that state."""
    for _ in side.patiently(f"{who} to be in {state}"):
        if side.get(describe(who.id)).transaction_states[0].transaction_state == state:
            return


def filled(side: Side, who: Who, topic: MadeTopic, sequence: int = 0, **fields: int) -> None:
    """Produce as `produce`, without comparing; partitions are added with the records."""
    answer = side.get(produce(who, topic, sequence, **fields))
    row = answer.responses[0].partition_responses[0]
    if row.error_code:
        raise CaseBroken(f"{side.product}: {who} could not produce: {row}")
