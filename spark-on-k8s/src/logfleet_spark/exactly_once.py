"""Writes a batch of rows exactly once: one transaction that also commits the batch's version.

Spark repeats a batch if the driver ends after the write and before the checkpoint. The version is
the number of the batch. It is kept as an offset of the consumer group that has the application's
id, in the transaction of the rows, so both are there or neither is. A batch whose version is there
is not written again. Source of the idea: `txnAppId` and `txnVersion` of Delta Lake.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.wire.errors import ErrorCode

from logfleet_spark.client_options import OptionError
from logfleet_spark.options import APP_ID, TRANSACTION_TIMEOUT, app_id_of_query
from logfleet_spark.rows import TOPIC
from logfleet_spark.writing import write

log = logging.getLogger(__name__)

ROWS: Final = "rows"
"""Key of the number of the batch's rows, in the JSON that is committed with its version."""
_ENDED_BY_OTHERS: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class VersionError(Exception):
    """The batch must not be written: the topic holds a later one, or another of this version."""


class OvertakenError(Exception):
    """The transaction was ended by somebody else, or because it took too long."""


@dataclass(frozen=True, slots=True)
class VersionedBatch:
    """The batch of an application. version: rises from batch to batch. rows: their number."""

    app_id: str
    version: int
    rows: int


def app_id_of_checkpoint(place: str | None) -> str:
    """Return the id of the query with this checkpoint.

    Raises OptionError if the checkpoint is not in a folder of this machine: only Spark reads others.
    """
    try:
        metadata = Path((place or "").removeprefix("file:"), "metadata").read_text(encoding="utf-8")
        return app_id_of_query(json.loads(metadata)["id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise OptionError(
            f"{APP_ID}: missing, and no query's id can be read in the checkpoint {place}; set it to a "
            "name that only this query has"
        ) from None


async def write_once(
    client: Client,
    given: Iterable[pa.RecordBatch],
    topic: str | None,
    batch: VersionedBatch,
    **options: Any,
) -> bool:
    """Write the rows in one transaction; return False if they were written before.

    options: of the producer. Afterwards no other writer of the application can commit what it has
    begun. Raises VersionError. Raises OvertakenError or a ClientError if the rows may be written or
    not; the same call with the same rows finds out, and writes them if they are not.
    """
    try:
        return await _write_once(client, given, topic, batch, options)
    except ClientError as error:
        cause = error.__cause__ or error
        if not isinstance(cause, KafkaError) or cause.code not in _ENDED_BY_OTHERS:
            raise
        raise OvertakenError(
            f"batch {batch.version} of {batch.app_id}: its transaction was ended by another driver "
            f"that writes under this id, or it took longer than {TRANSACTION_TIMEOUT}; end the other "
            "driver or allow more time, and start again"
        ) from error


async def _write_once(
    client: Client,
    given: Iterable[pa.RecordBatch],
    topic: str | None,
    batch: VersionedBatch,
    options: Mapping[str, Any],
) -> bool:
    async with TransactionalProducer(client, batch.app_id, **options) as producer:
        await producer.init()  # from here on nobody else changes the version
        if await _is_written(client, batch):
            return False
        topics: set[str] = set()
        await producer.begin()
        await write(producer.records, _noting(given, topic, topics), topic)
        at = {TopicPartition(name, 0): batch.version + 1 for name in topics}
        await producer.add_offsets(batch.app_id, at, metadata=json.dumps({ROWS: batch.rows}))
        await producer.commit()
        return True


async def _is_written(client: Client, batch: VersionedBatch) -> bool:
    """Return whether the batch is in its topics. Raises VersionError."""
    committed = await Groups(client).committed(batch.app_id)
    newest = max(committed.values(), key=lambda each: each.offset, default=None)
    if newest is None or newest.offset <= batch.version:
        return False
    who = f"batch {batch.version} of {batch.app_id}"
    if newest.offset > batch.version + 1:
        raise VersionError(
            f"{who}: batch {newest.offset - 1} is written already, so an older checkpoint was "
            f"restored, or another query has this id; go on with the newer checkpoint, or give "
            f"the query another {APP_ID}, under which it writes its batches again"
        )
    rows = _rows_of(newest.metadata)
    if rows != batch.rows:
        raise VersionError(
            f"{who}: it is written already, with {rows} rows, and now has {batch.rows}: another "
            f"write has this id and version, or an older checkpoint was restored; give it another "
            f"{APP_ID}, under which these rows are written"
        )
    log.info("%s is written already: its %d rows are not written again", who, rows)
    return True


def _rows_of(metadata: str) -> int:
    """Return the number of rows in what was committed; -1 if another program has committed it."""
    try:
        return int(json.loads(metadata)[ROWS])
    except (ValueError, KeyError, TypeError):
        return -1


def _noting(
    given: Iterable[pa.RecordBatch], topic: str | None, topics: set[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; add the topics of their rows to `topics`."""
    for batch in given:
        topics.update([topic] if topic else batch.column(TOPIC).unique().to_pylist())
        yield batch
