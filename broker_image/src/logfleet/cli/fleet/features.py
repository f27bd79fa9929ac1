"""`logfleet features`: show the feature level, and raise it after an upgrade."""

from collections.abc import Callable

import click
import msgspec

from logfleet.cli.confirming import yes_option
from logfleet.cli.session import Server, echo_json, listing_options, run, server_options
from logfleet.client.cluster import Client
from logfleet.client.features import describe_level, raise_level
from logfleet.controller.brokers.feature_level import FEATURE, FeatureLevel


@click.group()
def features() -> None:
    """Show and raise the feature level: what brokers may write that older versions cannot read.

    After an upgrade the level stays, so that you can go back to the version before. Raising it ends
    that. `kafka-features` does the same.

    \b
    logfleet features describe
    logfleet features upgrade 2
    """


@features.command()
@listing_options
def describe(*, as_json: bool, server: Server) -> None:
    """Show the level, and the highest that all brokers support."""
    found = run(server, describe_level)
    if as_json:
        echo_json(msgspec.structs.asdict(found))
    else:
        click.echo(_line(found))


@features.command()
@click.argument("level", type=click.IntRange(1))
@yes_option
@server_options
def upgrade(level: int, *, confirm: Callable[[str], None], server: Server) -> None:
    """Raise the level. It is never lowered: versions that do not support it cannot start any more.

    Refused while a broker does not support it or is not running; the error names it. Asks first on
    a terminal; a script gives --yes.

    \b
    logfleet features upgrade 2
    logfleet features upgrade 2 --yes
    """
    confirm(f"Raise {FEATURE} to {level}, for good?")

    async def work(client: Client) -> FeatureLevel:
        await raise_level(client, level)
        return await describe_level(client)

    click.echo(_line(run(server, work)))


def _line(found: FeatureLevel) -> str:
    line = f"{FEATURE} is at {found.finalized}"
    if found.possible > found.finalized:
        line += f", and can be raised to {found.possible}"
    return f"{line}. {found.objection}".rstrip() if found.objection else f"{line}."
