"""`logfleet produce`: write records from standard input to a topic."""

from typing import Final

import click

from logfleet.cli.completion.callbacks import complete
from logfleet.cli.session import Server, guard, record_output_option, run, server_options
from logfleet.cli.streams.input import Input
from logfleet.cli.streams.input_options import input_options
from logfleet.cli.streams.sending import (
    ACKS,
    Output,
    produce_in_transactions,
    produce_lines,
)
from logfleet.records.compression import Codec

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of Codec, as in Kafka's compression.type."""


@click.command()
@click.argument("topic", shell_complete=complete("topics"))
@input_options
@click.option("-z", "--codec", type=click.Choice(CODECS), default="none", show_default=True)
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
@click.option("-v", "--verbose", is_flag=True, help="At the end: records, seconds, next offsets.")
@server_options
@guard(lambda _: True)
@record_output_option
def produce(
    topic: str,
    *,
    source: Input,
    codec: str,
    acks: str,
    transactional_id: str | None,
    transaction_records: int | None,
    create: bool,
    verbose: bool,
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
    logfleet produce payments --transactional-id import-7 --file payments.txt

    A record in JSON has "value" and, if wanted, "key", "headers" (a list of [name, value]),
    "timestamp" (milliseconds since 1970) and "partition"; bytes that are no text are {"base64":
    "..."}. In separators, delimiters and keys \\t, \\n, \\0 and \\xHH are the bytes that they name.

    Exit codes: 0 all records are acknowledged, 1 one is not (stderr names its line; all lines
    before it are written, or those of earlier transactions), 2 the command line is wrong.
    """
    if transaction_records is not None and transactional_id is None:
        raise click.UsageError("--transaction-records: of which --transactional-id?")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("a transaction needs --acks all")
    output = Output(
        topic,
        ACKS[acks],
        Codec[codec.upper()],
        create,
        as_json,
        transactional_id,
        transaction_records,
        verbose,
    )
    write = produce_lines if transactional_id is None else produce_in_transactions
    run(server, lambda client: write(client, source, output))
