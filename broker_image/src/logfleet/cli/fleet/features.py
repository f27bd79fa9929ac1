"""`logfleet features`: show the feature level, and raise it after an upgrade."""

from collections.abc import Callable
from typing import Final

import click
import msgspec

from logfleet.cli.confirming import yes_option
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import change_each
from logfleet.cli.session import Server, changing_options, reading_options, run
from logfleet.client.cluster import Client
from logfleet.client.features import describe_level, raise_level
from logfleet.controller.brokers.feature_level import FEATURE, FeatureLevel

KIND: Final = "feature"


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
@reading_options
def describe(*, output: Output, server: Server) -> None:
    """Show the level, and the highest that all brokers support.

    \b
    logfleet features describe
    """
    found = run(server, describe_level)
    output.document(
        msgspec.structs.asdict(found), lambda: click.echo(_line(found)), names=[FEATURE]
    )


@features.command()
@click.argument("level", type=click.IntRange(1))
@yes_option
@changing_options
def upgrade(
    level: int, *, confirm: Callable[[str], None], dry_run: bool, output: Output, server: Server
) -> None:
    """Raise the level. It is never lowered: versions that do not support it cannot start any more.

    Refused while a broker does not support it or is not running; the error names it. Asks first on
    a terminal; a script gives --yes.

    \b
    logfleet features upgrade 2
    logfleet features upgrade 2 --yes
    """
    confirm(f"Raise {FEATURE} to {level}, for good?")

    async def one(client: Client, _name: str) -> str:
        before = await describe_level(client)
        await raise_level(client, level, validate_only=dry_run)
        return "unchanged" if before.finalized == level else f"raised to {level}"

    change_each(server, KIND, [FEATURE], one, output=output, dry_run=dry_run)


def _line(found: FeatureLevel) -> str:
    line = f"{FEATURE} is at {found.finalized}"
    if found.possible > found.finalized:
        line += f", and can be raised to {found.possible}"
    return f"{line}. {found.objection}".rstrip() if found.objection else f"{line}."
