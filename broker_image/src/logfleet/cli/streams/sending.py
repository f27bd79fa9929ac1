"""Sends lines or records as they come, waits for their acknowledgements, and counts them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import click
import msgspec

from logfleet.cli.advice import explain
from logfleet.cli.record_text import Draft, TextError
from logfleet.cli.session import standard_output
from logfleet.cli.streams.input import Input
from logfleet.cli.streams.tally import Tally
from logfleet.client.batches import Delivery, Written
from logfleet.client.cluster import Client
from logfleet.client.errors import AbortRequired, ClientError, KafkaError, OutcomeUnknown
from logfleet.client.producer import Producer
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.client.value_producer import Deliveries, Shared, ValueFailed, ValueProducer
from logfleet.records.compression import Codec
from logfleet.wire.errors import ErrorCode

ACKS: Final = {"all": -1, "1": 1, "0": 0}
UNCONFIRMED_MAX: Final = 100_000  # records sent while the first of them is not acknowledged
RUNS_UNCONFIRMED_MAX: Final = 1000  # the same for runs of values
NEW_TOPIC_SECONDS: Final = 0.3  # in which every broker learns of a topic that was just created

Sent: TypeAlias = "asyncio.Queue[tuple[int, Any] | None]"
"""Numbers of lines and what was sent of them, until None."""


class Output(NamedTuple):
    """How records are written. as_json: print each one on stdout once it is acknowledged.

    transactional_id: None for none. transaction_records: of one transaction; None: all. verbose:
    report seconds and next offsets at the end.
    """

    topic: str
    acks: int
    codec: Codec
    create: bool
    as_json: bool
    transactional_id: str | None = None
    transaction_records: int | None = None
    verbose: bool = False


async def produce_lines(client: Client, source: Input, output: Output) -> None:
    """Write all lines, or those before the first that cannot be sent.

    Raises ClickException, ClientError.
    """
    tally = Tally()
    done = "sent" if output.acks == ACKS["0"] else "written"
    with tally.reported(done, verbose=output.verbose):
        if source.is_plain and source.rate is None and not output.as_json:
            await _produce_values(client, source, output, tally)
        else:
            await _produce_records(client, source, output, tally)


async def _produce_records(client: Client, source: Input, output: Output, tally: Tally) -> None:
    producer = Producer(
        client,
        acks=output.acks,
        idempotent=output.acks == ACKS["all"],
        codec=output.codec,
        delivery_timeout_ms=client.timeout_ms,
        auto_create=output.create,
    )
    await _check_topic(client, producer, output)
    source.greet()

    async def feed(sent: Sent) -> None:
        async for number, draft in source.drafts():
            await sent.put((number, await _send(producer, output.topic, number, draft)))

    async def confirm(number: int, delivery: Delivery) -> None:
        try:
            written = await delivery
        except ClientError as error:
            raise _not_written(number, error) from error
        tally.add(written)
        if output.as_json:
            standard_output().write(_row(written))

    await _until_confirmed(producer, feed, confirm, UNCONFIRMED_MAX)


async def _produce_values(client: Client, source: Input, output: Output, tally: Tally) -> None:
    """The same for lines that are values as they are, without an object for each."""
    shared = Shared(source.partition, source.key, tuple(source.headers))
    producer = ValueProducer(
        client,
        shared,
        acks=output.acks,
        codec=output.codec,
        delivery_timeout_ms=client.timeout_ms,
        auto_create=output.create,
    )
    await _check_topic(client, producer, output)
    source.greet()

    async def feed(sent: Sent) -> None:
        number = 1
        async for lines in source.lines():
            try:
                runs = await producer.send_values(output.topic, lines)
            except ClientError as error:
                raise _not_written(number, error) from error
            for run in runs:
                await sent.put((number, run))
                number += run.count

    async def confirm(number: int, run: Deliveries) -> None:
        try:
            tally.add(await run.written(), run.count)
        except ValueFailed as failed:
            tally.records += failed.index
            raise _not_written(number + failed.index, failed.error) from failed

    await _until_confirmed(producer, feed, confirm, RUNS_UNCONFIRMED_MAX)


async def _check_topic(
    client: Client, producer: Producer | TransactionalProducer, output: Output
) -> None:
    """Raise KafkaError if the topic is not there, before anybody types a line.

    With `create` the broker makes it.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + NEW_TOPIC_SECONDS
    while not output.create:
        try:
            await client.topic(output.topic)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break
            if loop.time() >= until:
                raise
            await asyncio.sleep(NEW_TOPIC_SECONDS / 5)
        else:
            break
    await producer.partition_count(output.topic)  # waits for what may pass


async def _until_confirmed(
    producer: Producer,
    feed: Callable[[Sent], Awaitable[None]],
    confirm: Callable[[int, Any], Awaitable[None]],
    unconfirmed_max: int,
) -> None:
    """Feed the producer and wait for its deliveries in order, at the same time.

    The first that is not written ends both. A line that cannot be sent is reported after what was
    sent before is written.
    """
    sent: Sent = asyncio.Queue(unconfirmed_max)

    async def confirm_all() -> None:
        while (entry := await sent.get()) is not None:
            await confirm(*entry)
            if sent.empty():
                standard_output().flush()

    bad_line: TextError | click.ClickException | None = None
    try:
        async with producer, asyncio.TaskGroup() as tasks:
            tasks.create_task(confirm_all())
            try:
                await feed(sent)
            except (TextError, click.ClickException) as error:
                bad_line = error
            await sent.put(None)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    if bad_line is not None:
        raise click.ClickException(str(bad_line))


async def produce_in_transactions(client: Client, source: Input, output: Output) -> None:
    """Write all lines in transactions; those before the first that cannot be committed stay.

    Raises ClickException, which names the lines that are not committed, ClientError.
    """
    assert output.transactional_id is not None
    producer = TransactionalProducer(
        client,
        output.transactional_id,
        codec=output.codec,
        delivery_timeout_ms=client.timeout_ms,
        auto_create=output.create,
    )
    await _check_topic(client, producer, output)
    tally = Tally()
    with tally.reported("written", verbose=output.verbose):
        await _produce_transactions(producer, source, output, tally)


async def _produce_transactions(
    producer: TransactionalProducer, source: Input, output: Output, tally: Tally
) -> None:
    sent: list[tuple[int, Delivery]] = []
    first = 1  # line of the transaction
    async with producer:
        await producer.init()
        source.greet()
        try:
            await producer.begin()
            async for number, draft in source.drafts():
                sent.append((number, await _send(producer, output.topic, number, draft)))
                if len(sent) == output.transaction_records:
                    await _commit(producer, sent, tally, as_json=output.as_json)
                    first = number + 1
                    await producer.begin()
            await _commit(producer, sent, tally, as_json=output.as_json)
        except OutcomeUnknown as error:
            raise click.ClickException(
                f"{error}; whether the lines from {first} on are committed is unknown"
            ) from error
        except (TextError, click.ClickException, ClientError) as error:
            with contextlib.suppress(ClientError):
                await producer.abort()
            reason = await _first_failure(sent) or _reason(error)
            raise click.ClickException(
                f"{reason}; the lines from {first} on are not committed"
            ) from error


def _reason(error: Exception) -> str:
    return explain(error) if isinstance(error, ClientError) else str(error)


async def _first_failure(sent: Sequence[tuple[int, Delivery]]) -> str | None:
    """The first record that failed by itself, not since its transaction was aborted."""
    for number, delivery in sent:
        try:
            await delivery
        except AbortRequired:
            continue
        except ClientError as error:
            return f"line {number}: {explain(error)}"
    return None


async def _commit(
    producer: TransactionalProducer,
    sent: list[tuple[int, Delivery]],
    tally: Tally,
    *,
    as_json: bool,
) -> None:
    """Commit, then count and print the records. Raises ClientError."""
    await producer.commit()
    out = standard_output()
    for _, delivery in sent:
        written = await delivery
        tally.add(written)
        if as_json:
            out.write(_row(written))
    out.flush()
    sent.clear()


def _not_written(number: int, error: ClientError) -> click.ClickException:
    return click.ClickException(f"line {number}: {explain(error)}")


async def _send(
    producer: Producer | TransactionalProducer, topic: str, number: int, draft: Draft
) -> Delivery:
    try:
        return await producer.send(
            topic,
            draft.value,
            key=draft.key,
            partition=draft.partition,
            headers=draft.headers,
            timestamp_ms=draft.timestamp_ms,
        )
    except ClientError as error:
        raise _not_written(number, error) from error


def _row(written: Written) -> bytes:
    row = {
        "topic": written.topic,
        "partition": written.partition,
        "offset": written.offset,
        "timestamp": written.timestamp_ms,
    }
    return msgspec.json.encode(row) + b"\n"
