"""`logfleet topic`: create, list, describe, alter and delete topics."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from logfleet.cli.advice import guess
from logfleet.cli.completion.callbacks import complete, complete_key
from logfleet.cli.confirming import check_internal, internal_option, yes_option
from logfleet.cli.log_dirs import bytes_text
from logfleet.cli.offsets import unknown_topic
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.output.report import change_each, show_each
from logfleet.cli.output.tables import echo_table
from logfleet.cli.session import (
    LONG_CONTEXT_FLAG,
    Server,
    changing_options,
    reading_options,
    run,
)
from logfleet.cli.times import Duration
from logfleet.cli.topic_rows import SORTS, chosen_topics, sorted_rows, topic_row
from logfleet.client.admin import BROKER_DEFAULT, Admin, ConfigSource, NewTopic, ResourceType
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.figures.topics import record_rates, topic_figures
from logfleet.client.metadata import NO_LEADER, Topic
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
from logfleet.resources.limits import PARTITIONS_MAX, REPLICAS_MAX
from logfleet.wire.errors import ErrorCode
from logfleet.wire.uuids import to_text

KIND: Final = "topic"
COLUMNS: Final = (
    Column("NAME", "name"),
    Column("PARTITIONS", "partitions"),
    Column("REPLICAS", "replicas"),
    Column("BYTES", lambda row: None if row["bytes"] is None else bytes_text(row["bytes"])),
    Column("RECORDS", "records"),
)
RATE: Final = Column("RATE", lambda row: None if row["rate"] is None else f"{row['rate']:.1f}/s")
LAST_COLUMNS: Final = (
    Column("ISSUES", lambda row: ", ".join(row["issues"])),
    Column("CLEANUP", "cleanup", is_wide=True),
    Column("ID", "id", is_wide=True),
)
changing_topic_options = functools.partial(changing_options, context_flags=LONG_CONTEXT_FLAG)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics.

    \b
    logfleet topic create orders --partitions 6 --config retention.ms=86400000
    logfleet topic list
    logfleet topic describe orders -o json
    logfleet topic alter orders --partitions 12 --delete-config retention.ms
    logfleet topic delete orders

    To keep topics as files, see `logfleet apply --help`.
    Exit codes: 0 done, 1 failed (one line on stderr for each topic), 2 the command line is wrong.
    """


def config_pairs(
    ctx: click.Context, option: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, equals, setting = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r}: write KEY=VALUE", ctx=ctx, param=option)
        pairs[key.strip()] = setting.strip()
    return pairs


config_option = click.option(
    "-c",
    "--config",
    multiple=True,
    metavar="KEY=VALUE",
    callback=config_pairs,
    shell_complete=complete_key,
    help="A topic's configuration, with Kafka's keys; may be given again and again.",
)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "-p", "--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="[default: num.partitions]"
)
@click.option(
    "-r",
    "--replicas",
    "--replication-factor",
    type=click.IntRange(1, REPLICAS_MAX),
    help="Copies of each partition.  [default: default.replication.factor]",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is left as it is.")
@changing_topic_options
def create(
    names: tuple[str, ...],
    *,
    partitions: int | None,
    replicas: int | None,
    config: Mapping[str, str],
    if_not_exists: bool,
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Create topics.

    Options that are not given follow the brokers' configuration.

    \b
    logfleet topic create orders
    logfleet topic create orders --partitions 6 -c retention.ms=86400000 -c max.message.bytes=2000000
    """

    async def one(client: Client, name: str) -> str:
        wanted = NewTopic(name, partitions or BROKER_DEFAULT, replicas or BROKER_DEFAULT, config)
        await Admin(client).create_topic(wanted, validate_only=dry_run)
        return "created"

    accepted = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
    change_each(server, KIND, names, one, output=output, dry_run=dry_run, accepted=accepted)


@topic.command(name="list")
@click.option("--internal", is_flag=True, help="Those that brokers keep for themselves, too.")
@click.option("--like", metavar="PATTERN", help="Only those whose name matches, as 'ord*'.")
@click.option("--empty", is_flag=True, help="Only those without records.")
@click.option(
    "--sort",
    "sort_by",
    type=click.Choice(list(SORTS)),
    default="name",
    show_default=True,
    help="Numbers begin with the largest.",
)
@click.option(
    "--rates",
    "rate_s",
    type=Duration(),
    metavar="2s",
    help="Measure for so long how many records are written per second.",
)
@reading_options
def list_(
    *,
    internal: bool,
    like: str | None,
    empty: bool,
    sort_by: str,
    rate_s: float | None,
    output: Output,
    server: Server,
) -> None:
    """List topics with their sizes, and what partitions lack.

    BYTES are those of one replica of each partition. RECORDS counts offsets from the first to the
    end: fewer are there after compaction, and markers of transactions count. "-" is unknown, as
    when a broker does not answer.

    \b
    logfleet topic list
    logfleet topic list --like 'ord*' --sort bytes
    logfleet topic list --rates 2s --sort rate
    logfleet topic list --empty -o name
    logfleet topic list -o json | jq -r '.[].id'
    """
    if sort_by == "rate" and rate_s is None:
        raise click.UsageError("--sort rate: measure for how long? Give --rates 2s")

    async def work(client: Client) -> list[dict[str, Any]]:
        found = chosen_topics(await Admin(client).list_topics(), like, internal=internal)
        if output.is_name and not empty and sort_by == "name":
            return [{"name": each.name} for each in found]
        rows = await _listed(client, found)
        if rate_s is not None:
            rates = await record_rates(client, found, rate_s)
            rows = [{**row, "rate": rates[row["name"]]} for row in rows]
        return sorted_rows([row for row in rows if not empty or row["records"] == 0], sort_by)

    rows = run(server, work)
    columns = [*COLUMNS, *[RATE] * (rate_s is not None), *LAST_COLUMNS]
    output.rows(rows, columns)


async def _listed(client: Client, found: Sequence[Topic]) -> list[dict[str, Any]]:
    admin, names = Admin(client), [each.name for each in found]
    figures = await topic_figures(client, found)
    min_isr = await admin.topic_values(names, "min.insync.replicas")
    cleanup = await admin.topic_values(names, "cleanup.policy")
    return [
        topic_row(
            each,
            figures[each.name],
            int(min_isr.get(each.name, 1)),
            brokers=len(client.metadata.nodes),
            cleanup=cleanup.get(each.name),
        )
        for each in found
    ]


@topic.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete("topics"))
@click.option("--all-config", is_flag=True, help="Keys at their defaults, too.")
@reading_options
def describe(names: tuple[str, ...], *, all_config: bool, output: Output, server: Server) -> None:
    """Show topics: configuration, leaders, replicas, offsets.

    Without a name all but the internal ones. ISR are the replicas that are in sync, BEGIN is the
    first offset that is still there, END the one that the next record gets. REMARK marks what is
    under-replicated, under min.insync.replicas or offline, and names who may lead besides the ISR
    (ELR).

    \b
    logfleet topic describe orders
    logfleet topic describe orders -o json | jq '.[0].partitions | map(.end - .begin) | add'
    """

    async def wanted(client: Client) -> tuple[str, ...]:
        if names:
            return names
        listed = await Admin(client).list_topics()
        return tuple(each.name for each in listed if not each.internal)

    describe_one = functools.partial(_describe, all_config=all_config)
    show_each(server, KIND, wanted, describe_one, _echo_description, output=output)


async def _describe(client: Client, name: str, *, all_config: bool) -> dict[str, Any]:
    """The description for JSON. Raises ClientError."""
    admin = Admin(client)
    found = await _found(admin, name)
    entries = await admin.topic_config(name)
    keys = [
        TopicPartition(name, each.index) for each in found.partitions if each.leader != NO_LEADER
    ]
    begins = await list_offsets(client, dict.fromkeys(keys, OffsetSpec.EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(keys, OffsetSpec.LATEST))
    eligible = await admin.eligible_leaders(name)
    min_isr = int(entries["min.insync.replicas"].value or 1)
    partitions = [
        {
            "partition": each.index,
            "leader": each.leader,
            "replicas": each.replicas,
            "isr": each.isr,
            "elr": eligible.get(each.index, ()),
            "remarks": each.remarks(min_isr),
            "begin": begins[key].offset if key in begins else None,
            "end": ends[key].offset if key in ends else None,
        }
        for each in found.partitions
        for key in [TopicPartition(name, each.index)]
    ]
    return {
        "name": name,
        "id": to_text(found.topic_id),
        "internal": found.internal,
        "config": {
            entry.name: entry.value
            for entry in entries.values()
            if all_config or entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": partitions,
    }


async def _found(admin: Admin, name: str) -> Topic:
    """The topic. Raises KafkaError if there is none."""
    found = await admin.find_topic(name)
    if found is None:
        raise await unknown_topic(admin, name)
    return found


def _echo_description(description: Row, _: Output) -> None:
    click.echo(f"Topic:   {description['name']}\nId:      {description['id']}")
    for index, (key, value) in enumerate(sorted(description["config"].items())):
        click.echo(f"{'' if index else 'Config:':<8} {key}={'' if value is None else value}")
    rows = []
    for each in description["partitions"]:
        leader = "none" if each["leader"] == NO_LEADER else each["leader"]
        brokers = (",".join(map(str, each[column])) for column in ("replicas", "isr"))
        ends = ("?" if each[column] is None else each[column] for column in ("begin", "end"))
        remarks = [remark.replace("_", " ") for remark in each["remarks"]]
        remarks += [f"ELR {','.join(map(str, each['elr']))}"] * bool(each["elr"])
        rows.append((each["partition"], leader, *brokers, *ends, "; ".join(remarks)))
    echo_table(("PARTITION", "LEADER", "REPLICAS", "ISR", "BEGIN", "END", "REMARK"), rows)


@topic.command()
@click.argument("name", shell_complete=complete("topics"))
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1, PARTITIONS_MAX),
    help="Their number afterwards; there are never fewer than before.",
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(1, REPLICAS_MAX),
    help="Brokers that each partition has afterwards; new ones copy it in the background.",
)
@config_option
@click.option(
    "-d",
    "--delete-config",
    multiple=True,
    metavar="KEY",
    shell_complete=complete_key,
    help="Reset a key to its default; may be given again and again.",
)
@internal_option
@changing_topic_options
def alter(
    name: str,
    *,
    internal: bool,
    partitions: int | None,
    replicas: int | None,
    config: Mapping[str, str],
    delete_config: tuple[str, ...],
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Give a topic more partitions, other replicas or another configuration.

    What is not named stays. Either all changes are made or none. With more partitions, later
    records of a key may go to another partition than earlier ones.

    \b
    logfleet topic alter orders --partitions 12
    logfleet topic alter orders --replicas 3
    logfleet topic alter orders -c retention.ms=3600000 -d segment.ms
    """
    if partitions is None and replicas is None and not config and not delete_config:
        raise click.UsageError(
            "nothing to change: give --partitions, --replicas, --config or --delete-config"
        )
    if both := sorted(set(config) & set(delete_config)):
        raise click.UsageError(f"{both[0]} stands in --config and in --delete-config")

    async def one(client: Client, name: str) -> str:
        await check_internal(Admin(client), name, internal=internal)
        return await _alter(
            Admin(client),
            await _found(Admin(client), name),
            partitions=partitions,
            replicas=replicas,
            config=config,
            delete_config=delete_config,
            dry_run=dry_run,
        )

    change_each(server, KIND, [name], one, output=output, dry_run=dry_run)


async def _alter(
    admin: Admin,
    found: Topic,
    *,
    partitions: int | None,
    replicas: int | None,
    config: Mapping[str, str],
    delete_config: tuple[str, ...],
    dry_run: bool,
) -> str:
    # a fifth of the time of `topic list`, which needs none of it
    from logfleet.client.reconcile import config_as_shown, own_config, perform_all
    from logfleet.resources.plan import (
        AlterTopicConfig,
        GrowTopic,
        ReplicateTopic,
        TopicAction,
        config_difference,
    )

    actions: list[TopicAction] = []
    if partitions is not None and partitions != len(found.partitions):
        actions.append(GrowTopic(found.name, partitions))
    if replicas is not None and any(len(each.replicas) != replicas for each in found.partitions):
        actions.append(ReplicateTopic(found.name, replicas))
    entries = await admin.topic_config(found.name)
    for key in delete_config:
        if key not in entries:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"--delete-config {key}: no such key{guess(key, entries)}",
            )
    current = own_config(entries)
    wanted = {key: value for key, value in current.items() if key not in delete_config}
    shown = config_as_shown(ResourceType.TOPIC, config)
    changed, removed = config_difference({**wanted, **shown}, current)
    if changed or removed:
        actions.append(AlterTopicConfig(found.name, changed, removed))
    await perform_all(admin, actions, validate_only=dry_run)
    return "configured" if actions else "unchanged"


@topic.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete("topics")
)
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no failure.")
@internal_option
@yes_option
@changing_options
def delete(
    names: tuple[str, ...],
    *,
    if_exists: bool,
    internal: bool,
    confirm: Callable[[str], None],
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Delete topics with all their records, at once and for good.

    Asks first on a terminal; a script gives --yes. Topics that brokers keep for themselves, as
    __consumer_offsets with what all groups have committed, are deleted only with --internal.

    \b
    logfleet topic delete orders payments
    logfleet topic delete orders --yes
    """
    confirm(f"Delete {', '.join(names)} with all records, for good?")

    async def one(client: Client, name: str) -> str:
        admin = Admin(client)
        if dry_run:
            await _found(admin, name)
        await check_internal(admin, name, internal=internal)
        if not dry_run:
            await admin.delete_topic(name)
        return "deleted"

    accepted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    change_each(server, KIND, names, one, output=output, dry_run=dry_run, accepted=accepted)
