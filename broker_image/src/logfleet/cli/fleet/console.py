"""`logfleet console`: pages about a running fleet, served to a browser."""

import asyncio
import ipaddress
import webbrowser

import click

from logfleet.cli.session import Server, server_options


def _address(ctx: click.Context, option: click.Parameter, value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise click.BadParameter(f"{value!r}: write host:port", ctx=ctx, param=option)
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    callback=_address,
    help="Where browsers connect; port 0 is any free one.",
)
@click.option("--insecure", is_flag=True, help="Listen on other addresses than loopback.")
@click.option("--open", "opened", is_flag=True, help="Open it in the browser.")
@click.option(
    "--write", is_flag=True, help="Let pages reset offsets of groups and delete topics, too."
)
@click.option("--hide-messages", is_flag=True, help="Show no records.")
@click.option(
    "--mask",
    default="",
    metavar="FIELD,...",
    help="Fields of JSON values that are not shown, as value.card,value.email.",
)
@click.option("--base-path", default="", metavar="/PATH", help="Where a proxy serves it.")
@click.option(
    "--stuck-after",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A group with members and lag that commits nothing for so long is shown as stuck.",
)
@server_options
def console(
    listen: tuple[str, int],
    *,
    insecure: bool,
    opened: bool,
    write: bool,
    hide_messages: bool,
    mask: str,
    base_path: str,
    stuck_after: float,
    server: Server,
) -> None:
    """Show a fleet in a browser: topics, records, groups, brokers, decisions. Ends with Ctrl-C.

    Pages are for reading; --write adds the two changes that it names, each with its command line
    and a dry run first. There is no login: anybody who reaches the port sees all records. So it
    listens on loopback, and elsewhere only with --insecure, behind a proxy that authenticates.
    It serves an Apache Kafka too, without events and may-i.

    \b
    logfleet console --open
    logfleet console -b kafka-1:9092 --hide-messages
    logfleet console --listen 0.0.0.0:8080 --insecure --base-path /logfleet
    """
    host, port = listen
    local = _is_loopback(host)
    if not (local or insecure):
        raise click.UsageError(
            f"--listen {host}: everybody who reaches that address could read all records; give "
            f"--insecure if something in front of it asks who is there"
        )
    if base_path and (not base_path.startswith("/") or base_path.endswith("/")):
        raise click.UsageError(f"--base-path {base_path}: write it as /path")
    from logfleet.console.app import Options
    from logfleet.console.serving import serve

    options = Options(
        bootstrap=server.bootstrap,
        write=write,
        hidden=hide_messages,
        masks=tuple(field for field in mask.split(",") if field),
        base_path=base_path,
        stuck_s=stuck_after,
        local=local,
    )

    def ready(url: str) -> None:
        click.echo(f"ready: {url}  brokers {server.bootstrap}  Ctrl-C stops")
        if opened:
            webbrowser.open(url)

    try:
        asyncio.run(serve(options, host, port, ready))
    except OSError as error:
        raise click.ClickException(f"--listen {host}:{port}: {error.strerror}") from error
