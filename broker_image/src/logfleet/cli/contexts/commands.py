"""`logfleet context`: names for clusters, so that nobody types addresses."""

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from logfleet.cli.completion.callbacks import complete_context
from logfleet.cli.contexts.address import find_context
from logfleet.cli.contexts.file import load_contexts, store_contexts
from logfleet.cli.contexts.model import (
    BOOTSTRAP,
    Context,
    Contexts,
    WrongContext,
    check_setting,
    make_context,
)
from logfleet.cli.output.formats import Column, Output, output_option
from logfleet.cli.output.report import Report
from logfleet.cli.root_options import root_options
from logfleet.cli.session import Server, run
from logfleet.client.admin import Admin, ClusterDescription

KIND: Final = "context"
ASK_S: Final = 3.0
COLUMNS: Final = (
    Column("", lambda row: "*" if row["current"] else ""),
    Column("NAME", "name"),
    Column("BROKERS", "bootstrap"),
    Column("READ-ONLY", "readOnly"),
    Column("CLUSTER", "cluster"),
    Column("SETTINGS", lambda row: list(row["settings"]), is_wide=True),
)


@click.group()
def context() -> None:
    """Name clusters, and choose the one that commands are for.

    \b
    logfleet context add prod -b b1:9092,b2:9092 --read-only
    logfleet context use prod
    logfleet context list
    logfleet topic list -c prod
    logfleet context remove prod

    The address of a command is that of -b, else of -c NAME, LOGFLEET_BOOTSTRAP_SERVER, the context
    LOGFLEET_CONTEXT, the current context, localhost:9092. Commands that change a cluster whose
    context is read-only refuse it, unless --yes-change NAME is given.

    Contexts are kept in $XDG_CONFIG_HOME/logfleet/contexts.toml, or in ~/.config/logfleet, and only
    you can read that file. Exit codes: 0 done, 1 failed (one line on stderr), 2 the command line is
    wrong.
    """


@context.command()
@click.argument("name")
@click.option("-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT,...", help="Its brokers.")
@click.option("--read-only", is_flag=True, help="Refuse what changes it, without --yes-change.")
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of Kafka's clients for TLS and SASL, as security.protocol; a secret is named by "
    "its file: ${file:/PATH:KEY}. May be given again and again.",
)
@click.option("--replace", is_flag=True, help="Replace a context of this name.")
@click.option("--use", "is_used", is_flag=True, help="Make it the current one.")
@output_option
def add(
    name: str,
    *,
    bootstrap: str | None,
    read_only: bool,
    settings: Sequence[str],
    replace: bool,
    is_used: bool,
    output: Output,
) -> None:
    """Add a context, and show which cluster answers there.

    A cluster that does not answer is added all the same, with a warning. Settings for TLS and SASL
    are stored, and this version cannot connect with them.

    \b
    logfleet context add local -b localhost:9092 --use
    logfleet context add prod -b b1:9092,b2:9092 --read-only
    logfleet context add tls -b b1:9093 -s security.protocol=SSL -s ssl.truststore.location=/ca.pem
    """
    bootstrap = bootstrap or root_options().bootstrap
    if bootstrap is None:
        raise click.UsageError("where are its brokers? Give -b HOST:PORT")
    before = _loaded()
    if name in before.all and not replace:
        raise click.ClickException(f"context {name} exists already; --replace changes it")
    try:
        fields: dict[str, Any] = {BOOTSTRAP: bootstrap, "read_only": read_only}
        for setting in settings:
            key, _, value = setting.partition("=")
            check_setting(key, value)
            fields[key] = value
        added = make_context(name, fields)
    except WrongContext as error:
        raise click.UsageError(str(error)) from error
    found = _described(added)
    if found is not None:
        added = msgspec.structs.replace(added, cluster=found.cluster_id)
    _store(Contexts({**before.all, name: added}, name if is_used else before.current))
    cluster = None if found is None else found.cluster_id
    brokers = None if found is None else len(found.brokers)
    about = f": {brokers} brokers, cluster {cluster}" if found is not None else ""
    report = Report(output)
    report.done(KIND, name, f"added{about}", cluster=cluster, brokers=brokers)
    report.end()


def _described(added: Context) -> ClusterDescription | None:
    """The cluster at its addresses; None, after a warning, if it cannot be asked."""
    if (objection := added.objection()) is not None:
        click.echo(f"Warning: {objection}", err=True)
        return None
    try:
        server = Server(added.bootstrap, ASK_S)
        return run(server, lambda client: Admin(client).describe_cluster())
    except click.ClickException as error:
        click.echo(f"Warning: {error.format_message().partition(';')[0]}", err=True)
        return None


@context.command()
@click.argument("name", shell_complete=complete_context)
@output_option
def use(name: str, *, output: Output) -> None:
    """Make a context the current one, which commands are for if nothing else is given.

    \b
    logfleet context use prod
    """
    contexts = _loaded()
    found = _found(contexts, name)
    _store(Contexts(contexts.all, name))
    note = f"; changes need --yes-change {name}" if found.is_read_only else ""
    report = Report(output)
    report.done(KIND, name, f"is current{note}")
    report.end()


@context.command(name="list")
@output_option
def list_(*, output: Output) -> None:
    """List contexts; the star marks the current one.

    \b
    logfleet context list
    logfleet context list -o name
    """
    contexts = _loaded()
    output.rows([_row(each, contexts) for _, each in sorted(contexts.all.items())], COLUMNS)


@context.command()
@output_option
def current(*, output: Output) -> None:
    """Print the name of the current context. Exit codes: 0 there is one, 1 there is none.

    \b
    logfleet context current
    """
    contexts = _loaded()
    if contexts.current is None:
        raise click.ClickException("no context is current; `logfleet context use NAME` chooses one")
    name = contexts.current
    output.document(_row(contexts.all[name], contexts), lambda: click.echo(name), names=[name])


@context.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_context
)
@output_option
def remove(names: Sequence[str], *, output: Output) -> None:
    """Remove contexts; the clusters stay as they are.

    \b
    logfleet context remove prod
    """
    contexts = _loaded()
    for name in names:
        _found(contexts, name)
    left = {name: each for name, each in contexts.all.items() if name not in names}
    _store(Contexts(left, contexts.current if contexts.current in left else None))
    report = Report(output)
    for name in dict.fromkeys(names):
        report.done(KIND, name, "removed")
    report.end()


@context.command()
@click.argument("name", required=False, shell_complete=complete_context)
@output_option
def show(name: str | None, *, output: Output) -> None:
    """Show a context, by default the current one, with its settings.

    \b
    logfleet context show prod
    logfleet context show -o json | jq -r .bootstrap
    """
    contexts = _loaded()
    wanted = name or contexts.current
    if wanted is None:
        raise click.ClickException("no context is current; name one")
    row = _row(_found(contexts, wanted), contexts)

    def text() -> None:
        click.echo(f"Context:    {row['name']}{' (current)' if row['current'] else ''}")
        click.echo(f"Brokers:    {row['bootstrap']}")
        click.echo(f"Read-only:  {'yes' if row['readOnly'] else 'no'}")
        click.echo(f"Cluster:    {row['cluster'] or '-'}")
        for index, (key, value) in enumerate(row["settings"].items()):
            click.echo(f"{'' if index else 'Settings:':<12}{key}={value}")

    output.document(row, text, names=[wanted])


def _row(each: Context, contexts: Contexts) -> dict[str, Any]:
    return {
        "name": each.name,
        "bootstrap": each.bootstrap,
        "readOnly": each.is_read_only,
        "cluster": each.cluster,
        "current": each.name == contexts.current,
        "settings": dict(sorted(each.settings.items())),
    }


def _loaded() -> Contexts:
    try:
        return load_contexts()
    except WrongContext as error:
        raise click.ClickException(str(error)) from error


def _found(contexts: Contexts, name: str) -> Context:
    try:
        return find_context(contexts, name)
    except WrongContext as error:
        raise click.ClickException(str(error)) from error


def _store(contexts: Contexts) -> None:
    try:
        store_contexts(contexts)
    except OSError as error:
        raise click.ClickException(f"contexts cannot be written: {error}") from error
