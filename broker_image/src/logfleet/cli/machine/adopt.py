"""`logfleet adopt`: take over the partitions of a stopped one-node Apache Kafka."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from logfleet.cli.broker import read_config
from logfleet.cli.confirming import DRY_RUN, execute_option, report_dry_run
from logfleet.cli.log_dirs import bytes_text
from logfleet.cli.output.formats import Output, output_option
from logfleet.cli.output.tables import echo_table
from logfleet.config.broker import BrokerConfig, ConfigError
from logfleet.io.descriptors import raise_limit
from logfleet.io.files import PosixFiles, read_file
from logfleet.log.checkpoints.files import CorruptCheckpoint, parse_properties
from logfleet.log.names import META_PROPERTIES
from logfleet.metadata.store import StoreError
from logfleet.node.adoption.adopt import Adopted
from logfleet.node.adoption.adopt import adopt as take_over
from logfleet.node.adoption.kafka_directories import AdoptionRefused
from logfleet.node.adoption.writes import AdoptedTopic

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=DIRECTORY)
@click.option(
    "--properties",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kafka's server.properties: instead of DIR its log.dirs, and which metadata store the "
    "broker will use.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the broker's, as for `logfleet broker`. May be given again and again.",
)
@click.option(
    "--metadata-dir", type=DIRECTORY, help="Kafka's metadata.log.dir, where it is none of the DIRs."
)
@execute_option
@output_option
def adopt(
    directories: tuple[Path, ...],
    *,
    properties: Path | None,
    overrides: tuple[str, ...],
    metadata_dir: Path | None,
    execute: bool,
    output: Output,
) -> None:
    """Take over what a stopped one-node Apache Kafka left in DIR (all its log.dirs, in order).

    Topics with their ids, partitions and configuration, committed offsets, quotas and dynamic
    configs of brokers and groups are taken over. No record is copied or changed: the metadata that
    our broker needs is written beside Kafka's, which stays. Logs of a Kafka that was killed are
    recovered first, as its next start would do. Without --execute this only shows what would be
    done. In both cases the headers of all batches are read, which may take a while. The command may
    be interrupted and repeated at any time.

    To go back: stop the broker and start Kafka on the same directories. It has the topics that
    existed at the adoption, with all records written since; it does not know what was created,
    configured or deleted since.

    \b
    logfleet adopt kafka-data
    logfleet adopt kafka-data --execute && logfleet broker --override log.dirs=kafka-data --override node.id=1
    logfleet adopt --properties server.properties --execute && logfleet broker server.properties

    Exit codes: 0 done or nothing to do, 1 refused (one line on stderr for each reason), 2 the
    command line is wrong.
    """
    config, command = _config(directories, properties, overrides)
    raise_limit()  # a recovered log is flushed at once, and may have many segments
    metadata = (*config.log_dirs, str(metadata_dir)) if metadata_dir else config.log_dirs
    try:
        done = asyncio.run(take_over(PosixFiles(), config, metadata, execute=execute))
    except (AdoptionRefused, StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    problems = () if done.was_there else done.adoption.problems
    mark = {} if execute else {DRY_RUN: True}
    output.document(
        {**mark, **_as_json(done, command)},
        lambda: _echo(done, command),
        names=[topic.name for topic in done.adoption.topics],
    )
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    if problems:
        sys.exit(1)
    if not done.was_there:
        report_dry_run(execute=execute)


def _config(
    directories: tuple[Path, ...], properties: Path | None, overrides: tuple[str, ...]
) -> tuple[BrokerConfig, str]:
    """The broker's configuration, and the command that starts it. Raises ClickException."""
    if bool(directories) == bool(properties):
        raise click.UsageError("name the directories or --properties, one of them")
    given = list(overrides)
    try:
        if directories:
            given.append(f"log.dirs={','.join(str(each.absolute()) for each in directories)}")
            if not any(each.startswith("node.id=") for each in given):
                given.append(f"node.id={_node_id(directories[0])}")
        config = read_config(properties, tuple(given))
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error
    command = ["logfleet", "broker", *([str(properties)] if properties else [])]
    for each in given:
        command += ["--override", each]
    return config, shlex.join(command)


def _node_id(directory: Path) -> str:
    """Return the node id in the directory's meta.properties. Raises ClickException, OSError."""
    try:
        found = parse_properties(read_file(PosixFiles(), f"{directory}/{META_PROPERTIES}") or b"")
        return found["node.id"]
    except (CorruptCheckpoint, KeyError):
        raise click.ClickException(
            f"{directory}/{META_PROPERTIES} names no node.id: {directory} is no log directory of a "
            f"Kafka in KRaft mode"
        ) from None


def _as_json(done: Adopted, command: str) -> dict[str, Any]:
    adoption = done.adoption
    return {
        "result": _result(done),
        "cluster": adoption.cluster_id,
        "node": adoption.node_id,
        "topics": [
            {
                "name": topic.name,
                "id": topic.id,
                "partitions": len(topic.leader_epochs),
                "size": topic.size_bytes,
                "config": dict(topic.configs),
            }
            for topic in adoption.topics
        ],
        "notes": adoption.notes,
        "problems": () if done.was_there else adoption.problems,
        "next": command,
    }


def _result(done: Adopted) -> str:
    if done.was_there:
        return "unchanged"
    if done.adoption.problems:
        return "refused"
    return "adopted" if done.written else "planned"


def _echo(done: Adopted, command: str) -> None:
    adoption = done.adoption
    if done.was_there:
        click.echo(f"Cluster {adoption.cluster_id} was adopted before. Start it: {command}")
        return
    click.echo(f"Cluster {adoption.cluster_id}, node {adoption.node_id}")
    echo_table(
        ("TOPIC", "PARTITIONS", "SIZE", "ID", "CONFIG"), [_row(each) for each in adoption.topics]
    )
    for note in adoption.notes:
        click.echo(f"Note: {note}")
    if done.written:
        click.echo(f"Adopted. Start it: {command}")


def _row(topic: AdoptedTopic) -> tuple[object, ...]:
    configs = " ".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
    return topic.name, len(topic.leader_epochs), bytes_text(topic.size_bytes), topic.id, configs
