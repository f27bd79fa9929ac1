"""`logfleet metadata`: take and restore snapshots of the metadata store."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from logfleet.cli.broker import config_options, read_config
from logfleet.cli.confirming import DRY_RUN, execute_option, report_dry_run
from logfleet.cli.output.formats import Output, output_option
from logfleet.config.broker import BrokerConfig, ConfigError
from logfleet.metadata.snapshot_file import DamagedSnapshot
from logfleet.metadata.store import MetadataStore, StoreError, StoreLocked
from logfleet.node.tools.metadata_snapshots import EmptyStore, NotEmpty, read, restore, take
from logfleet.store.opening import open_store

KEEP: Final = 7
NOUNS: Final = {
    "topic": "topics",
    "part": "partitions",
    "config": "configurations",
    "quota": "quotas",
}
T = TypeVar("T")


@click.group()
def metadata() -> None:
    """Take snapshots of the metadata store, and restore one into an empty store.

    \b
    logfleet metadata snapshot server.properties --directory /backup --keep 7
    logfleet metadata restore server.properties --file /backup/metadata-logfleet-20261125T120000Z-r4711.snapshot
    """


@metadata.command()
@config_options
@click.option(
    "--directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where snapshots are.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=KEEP,
    show_default=True,
    help="How many snapshots there are at most, the newest.",
)
@output_option
def snapshot(
    properties: Path | None,
    *,
    overrides: tuple[str, ...],
    env_prefix: str,
    directory: Path,
    keep: int,
    output: Output,
) -> None:
    """Write all that the metadata store holds to a file.

    Of etcd while brokers run; of a single broker's embedded store while that is stopped.

    PROPERTIES is a broker's server.properties: it says where the store is. Topics, configurations,
    quotas and who has which replica are in it; records and committed offsets are not.

    \b
    logfleet metadata snapshot server.properties --directory /backup --keep 7
    """
    config = _config(properties, overrides, env_prefix)

    async def work(store: MetadataStore) -> Path:
        return await take(store, config.logfleet_cluster_name, directory, keep)

    path = str(_run(config, work))
    output.document({"file": path}, lambda: click.echo(path), names=[path])


@metadata.command(name="restore")
@config_options
@click.option(
    "--file",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The snapshot.",
)
@execute_option
@output_option
def restore_(
    properties: Path | None,
    *,
    overrides: tuple[str, ...],
    env_prefix: str,
    path: Path,
    execute: bool,
    output: Output,
) -> None:
    """Write a snapshot into an empty metadata store, while no broker runs.

    Leader epochs and producer ids are raised above all that logs can know. What happened after the
    snapshot is lost: brokers set topics created since aside, and deleted ones exist again;
    docs/how-to/restoring-metadata.md has all of it.

    \b
    logfleet metadata restore server.properties --file metadata.snapshot
    logfleet metadata restore server.properties --file metadata.snapshot --execute
    """
    config = _config(properties, overrides, env_prefix)
    try:
        head, items = read(path)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    except DamagedSnapshot as error:
        raise click.ClickException(f"{path} is no whole snapshot: {error}") from error
    if head.cluster != config.logfleet_cluster_name:
        raise click.ClickException(
            f"{path} is of cluster {head.cluster}, and logfleet.cluster.name is "
            f"{config.logfleet_cluster_name}"
        )
    counts = Counter(key.partition("/")[0] for key in items)
    listed = ", ".join(f"{counts[kind]} {noun}" for kind, noun in NOUNS.items() if counts[kind])
    written = _run(config, lambda store: restore(store, items)) if execute else None
    document = {"file": str(path), "taken": head.taken, "revision": head.revision, **counts}

    def text() -> None:
        click.echo(f"Snapshot of {head.taken}, revision {head.revision}: {listed or 'nothing'}.")
        if written is not None:
            click.echo(f"{written} keys were written.")

    mark = {DRY_RUN: True} if written is None else {"written": written}
    output.document({**mark, **document}, text, names=[path])
    report_dry_run(execute=execute)


def _config(properties: Path | None, overrides: tuple[str, ...], env_prefix: str) -> BrokerConfig:
    try:
        return read_config(properties, overrides, env_prefix)
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _run(config: BrokerConfig, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
    async def opened() -> Any:
        store = await open_store(config)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        done: T = asyncio.run(opened())
    except StoreLocked as error:
        raise click.ClickException(f"{error}: stop the broker first") from error
    except (StoreError, EmptyStore, NotEmpty, DamagedSnapshot, OSError) as error:
        raise click.ClickException(str(error)) from error
    return done
