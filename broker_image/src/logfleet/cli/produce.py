"""`logfleet produce`: write records from standard input to a topic."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

import click
import msgspec

from logfleet.cli.advice import explain
from logfleet.cli.output.tables import is_terminal
from logfleet.cli.progress import is_shown, progress
from logfleet.cli.record_text import (
    Draft,
    LineCutter,
    TextError,
    draft_reader,
    read_json,
    unescape,
)
from logfleet.cli.session import (
    Server,
    guard,
    record_output_option,
    run,
    server_options,
    standard_input,
    standard_output,
)
from logfleet.client.batches import Delivery, Written
from logfleet.client.cluster import Client
from logfleet.client.errors import AbortRequired, ClientError, OutcomeUnknown
from logfleet.client.producer import Producer
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.records.compression import Codec
from logfleet.records.record import Header

ACKS: Final = {"all": -1, "1": 1, "0": 0}
CODECS: Final = {codec.name.lower(): codec for codec in Codec}
CHUNK_BYTES: Final = 64 * 1024
UNCONFIRMED_MAX: Final = 100_000  # records sent while the first of them is not acknowledged
LINE_BYTES_MAX: Final = 100 * 1024 * 1024  # Kafka: socket.request.max.bytes; no broker takes more


class Input(NamedTuple):
    """How standard input becomes records."""

    delimiter: bytes
    read: Callable[[bytes], Draft]
    headers: Sequence[Header]
    partition: int | None


class Output(NamedTuple):
    """How records are written. as_json: print each one on stdout once it is acknowledged.

    transactional_id: None for none. transaction_records: of one transaction; None: all.
    """

    topic: str
    acks: int
    codec: Codec
    create: bool
    as_json: bool
    transactional_id: str | None = None
    transaction_records: int | None = None


def _bytes_of(ctx: click.Context, option: click.Parameter, value: str | None) -> bytes | None:
    try:
        return None if value is None else unescape(value)
    except TextError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error


def _headers_of(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> list[Header]:
    headers: list[Header] = []
    for value in values:
        name, equals, content = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r}: write NAME=VALUE", ctx=ctx, param=option)
        try:
            name.encode()
        except UnicodeEncodeError as error:
            # a value is bytes, a name is text (Kafka: RecordHeader)
            raise click.BadParameter(
                f"{value!r}: the name is not UTF-8", ctx=ctx, param=option
            ) from error
        headers.append((name, content.encode(errors="surrogateescape")))
    return headers


@click.command()
@click.argument("topic")
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    callback=_bytes_of,
    help="The text before it is the record's key; a line without it is an error.",
)
@click.option("-k", "--key", metavar="TEXT", callback=_bytes_of, help="The key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_headers_of,
    help="A header of every record; may be given again and again.",
)
@click.option(
    "-p", "--partition", type=click.IntRange(0), help="[default: by the key, as Kafka's clients]"
)
@click.option("-z", "--codec", type=click.Choice(list(CODECS)), default="none", show_default=True)
@click.option(
    "-a",
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Which replicas must have a record before it counts as written: all in-sync replicas, the "
    "leader, nobody. With all, a retry never writes a record twice.",
)
@click.option(
    "-D",
    "--delimiter",
    default=r"\n",
    show_default=True,
    metavar="TEXT",
    callback=_bytes_of,
    help="Ends a record.",
)
@click.option(
    "--null",
    metavar="TEXT",
    callback=_bytes_of,
    help="A key or value of just this is null (a tombstone); '' means empty ones.",
)
@click.option("--json", "from_json", is_flag=True, help="Each line is a record in JSON.")
@click.option(
    "--transactional-id",
    metavar="NAME",
    help="Write all records in one transaction, and fence other producers of this name.",
)
@click.option(
    "--transaction-records",
    type=click.IntRange(1),
    metavar="N",
    help="Commit each N records, and the rest at the end.",
)
@click.option("--create", is_flag=True, help="Let the broker create the topic with its defaults.")
@server_options
@guard(lambda _: True)
@record_output_option
def produce(
    *,
    topic: str,
    key_separator: bytes | None,
    key: bytes | None,
    headers: list[Header],
    partition: int | None,
    codec: str,
    acks: str,
    delimiter: bytes,
    null: bytes | None,
    from_json: bool,
    transactional_id: str | None,
    transaction_records: int | None,
    create: bool,
    as_json: bool,
    server: Server,
) -> None:
    """Write each line of standard input to TOPIC as a record.

    Ends at the end of the input (Ctrl-D), when every record is acknowledged. With -o json, each
    record is printed once it is acknowledged: topic, partition, offset, timestamp. In a transaction
    that is when it is committed; readers of committed records see all of it, or nothing.

    \b
    echo hello | logfleet produce greetings
    logfleet produce orders -K: -H source=shell -z zstd < orders.txt
    logfleet consume orders -o json --from-beginning --exit-at-end | logfleet produce copy --json
    logfleet produce payments --transactional-id import-7 < payments.txt

    A record in JSON has "value" and, if wanted, "key", "headers" (a list of [name, value]),
    "timestamp" (milliseconds since 1970) and "partition"; bytes that are no text are {"base64":
    "..."}. In separators, delimiters and keys \\t, \\n, \\0 and \\xHH are the bytes that they name.

    Exit codes: 0 all records are acknowledged, 1 one is not (stderr names its line; all lines
    before it are written, or those of earlier transactions), 2 the command line is wrong.
    """
    if delimiter == b"" or key_separator == b"":
        raise click.UsageError("an empty text separates nothing: --delimiter, --key-separator")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator both say where the key is, give one")
    if from_json and (key, key_separator, null) != (None, None, None):
        raise click.UsageError("--json says where key and null are, leave out the other options")
    if transaction_records is not None and transactional_id is None:
        raise click.UsageError("--transaction-records: of which --transactional-id?")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("a transaction needs --acks all")
    read = read_json if from_json else draft_reader(separator=key_separator, null=null, key=key)
    output = Output(
        topic, ACKS[acks], CODECS[codec], create, as_json, transactional_id, transaction_records
    )
    source = Input(delimiter, read, headers, partition)
    write = produce_lines if transactional_id is None else produce_in_transactions
    run(server, lambda client: write(client, source, output))


async def produce_lines(client: Client, source: Input, output: Output) -> None:
    """Write all lines, or those before the first that cannot be sent.

    Raises ClickException, ClientError.
    """
    producer = Producer(
        client,
        acks=output.acks,
        idempotent=output.acks == ACKS["all"],
        codec=output.codec,
        delivery_timeout_ms=client.timeout_ms,
        auto_create=output.create,
    )
    await producer.partition_count(output.topic)  # fail before anybody types a line
    _greet()
    sent: asyncio.Queue[tuple[int, Delivery] | None] = asyncio.Queue(UNCONFIRMED_MAX)
    bad_line: TextError | click.ClickException | None = None
    try:
        async with producer, asyncio.TaskGroup() as tasks:
            tasks.create_task(_confirm(sent, as_json=output.as_json))
            try:
                async for number, draft in _drafts(source):
                    await sent.put((number, await _send(producer, output.topic, number, draft)))
            except (TextError, click.ClickException) as error:
                bad_line = error  # reported after what was sent before is written
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
    await producer.partition_count(output.topic)  # fail before anybody types a line
    sent: list[tuple[int, Delivery]] = []
    first = 1  # line of the transaction
    async with producer:
        await producer.init()
        _greet()
        try:
            await producer.begin()
            async for number, draft in _drafts(source):
                sent.append((number, await _send(producer, output.topic, number, draft)))
                if len(sent) == output.transaction_records:
                    await _commit(producer, sent, as_json=output.as_json)
                    first = number + 1
                    await producer.begin()
            await _commit(producer, sent, as_json=output.as_json)
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
    producer: TransactionalProducer, sent: list[tuple[int, Delivery]], *, as_json: bool
) -> None:
    """Commit, then print the records. Raises ClientError."""
    await producer.commit()
    if as_json:
        out = standard_output()
        for _, delivery in sent:
            out.write(_row(await delivery))
        out.flush()
    sent.clear()


def _greet() -> None:
    if standard_input().isatty():
        click.echo("one record per line; Ctrl-D ends", err=True)


async def _drafts(source: Input) -> AsyncIterator[tuple[int, Draft]]:
    """The records with the numbers of their lines, from 1. Raises TextError, naming the line."""
    cutter = LineCutter(source.delimiter, LINE_BYTES_MAX)
    number = 0
    async for chunk in _shown(_chunks()):
        try:
            for line in cutter.feed(chunk) if chunk else cutter.end():
                draft = source.read(line)
                number += 1
                yield (
                    number,
                    msgspec.structs.replace(
                        draft,
                        headers=(*source.headers, *draft.headers),
                        partition=draft.partition if source.partition is None else source.partition,
                    ),
                )
        except TextError as error:
            raise TextError(f"line {number + 1}: {error}") from error


async def _shown(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same chunks, with a progress bar if they come from a file, whose size is known."""
    status = os.fstat(standard_input().fileno())
    is_file = stat.S_ISREG(status.st_mode)
    is_wanted = is_file and is_shown(output_is_shown=is_terminal())
    with progress("sending", status.st_size, is_wanted=is_wanted) as advance:
        async for chunk in chunks:
            yield chunk
            advance(len(chunk))


async def _chunks() -> AsyncIterator[bytes]:
    """Standard input in chunks, and b"" at its end.

    It waits in the event loop, so Ctrl-C ends it.
    """
    descriptor = standard_input().fileno()
    while True:
        await _readable(descriptor)
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except OSError as error:
            raise click.ClickException(f"standard input: {error.strerror}") from error
        yield chunk
        if not chunk:
            return


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        await asyncio.sleep(0)  # epoll refuses regular files: they are always readable
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


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
        raise click.ClickException(f"line {number}: {explain(error)}") from error


async def _confirm(sent: asyncio.Queue[tuple[int, Delivery] | None], *, as_json: bool) -> None:
    """Wait for the records in order, until None. The first one that is not written ends it."""
    out = standard_output()
    while (entry := await sent.get()) is not None:
        number, delivery = entry
        try:
            written = await delivery
        except ClientError as error:
            raise click.ClickException(f"line {number}: {explain(error)}") from error
        if as_json:
            out.write(_row(written))
            if sent.empty():
                out.flush()
    out.flush()


def _row(written: Written) -> bytes:
    row = {
        "topic": written.topic,
        "partition": written.partition,
        "offset": written.offset,
        "timestamp": written.timestamp_ms,
    }
    return msgspec.json.encode(row) + b"\n"
