"""A valid request of each API of transactions, for `bases`: of a transaction of its own, in which the topic's partition is."""

from typing import Final

import msgspec
from logfleet.wire import messages as m

from e2e.compare import producers as p
from e2e.compare import requests as r
from e2e.compare.producers import Who
from e2e.compare.stage import Base, Stage


def begun(stage: Stage) -> Who:
    """A producer with a transaction."""
    who = Who(stage.fresh("id"))
    given = stage.side.get(p.init(who))
    who = Who(who.id, given.producer_id, given.producer_epoch)
    stage.side.get(p.add(who, {stage.topic.name: [0]}), 3)
    return who


def _add_partitions(stage: Stage) -> msgspec.Struct:
    """With the fields of both kinds of versions."""
    who = begun(stage)
    request = p.add(who, {stage.topic.name: [0]})
    request.transactions = [p.of_broker(who, {stage.topic.name: [0]})]
    return request


def _txn_offset_commit(stage: Stage) -> msgspec.Struct:
    who, group = begun(stage), stage.fresh("group")
    stage.side.get(p.add_group(who, group))
    return p.commit_offsets(who, group, {(stage.topic.name, stage.topic.id): {0: 5}})


def _describe(stage: Stage) -> msgspec.Struct:
    return p.describe(begun(stage).id)


def _list(stage: Stage) -> msgspec.Struct:
    who = begun(stage)
    return m.ListTransactionsRequest(
        state_filters=["Ongoing"],
        producer_id_filters=[who.producer_id],
        transactional_id_pattern=f"{stage.side.prefix}.*",
    )


def _markers(stage: Stage) -> msgspec.Struct:
    """Ends the transaction of a producer that no coordinator knows."""
    who = Who("", p.UNKNOWN_PRODUCER, 0)
    partitions = {stage.topic.name: [0]}
    marker = p.marker(who, partitions, coordinator_epoch=3, transaction_version=1)
    return m.WriteTxnMarkersRequest(markers=[marker])


TRANSACTION_BASES: Final[dict[str, Base]] = {
    "AddPartitionsToTxn": _add_partitions,
    "AddOffsetsToTxn": lambda stage: p.add_group(begun(stage), stage.fresh("group")),
    "EndTxn": lambda stage: p.end(begun(stage)),
    "WriteTxnMarkers": _markers,
    "TxnOffsetCommit": _txn_offset_commit,
    "DescribeProducers": lambda stage: p.describe_producers(stage.topic.name, 0),
    "DescribeTransactions": _describe,
    "ListTransactions": _list,
    "InitProducerId": lambda stage: m.InitProducerIdRequest(
        transactional_id=stage.fresh("id"), transaction_timeout_ms=r.SESSION_MS
    ),
}
