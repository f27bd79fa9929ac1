"""`logfleet quota`: limits of what clients may do, described, set and deleted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from logfleet.cli.confirming import yes_option
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import change_each
from logfleet.cli.output.tables import echo_table
from logfleet.cli.session import Server, changing_options, reading_options, run
from logfleet.client.cluster import Client
from logfleet.client.quotas import Entity, Quota, alter_quota, describe_quotas

C = TypeVar("C", bound=Callable[..., Any])

KIND: Final = "quota"
DEFAULT: Final = "<default>"
KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


@click.group()
def quota() -> None:
    """Describe, set and delete limits of what clients may do.

    \b
    logfleet quota set --client-id etl producer_byte_rate=1048576 consumer_byte_rate=2097152
    logfleet quota set --user-default request_percentage=20
    logfleet quota set --ip 10.0.0.7 connection_creation_rate=5
    logfleet quota describe
    logfleet quota delete --client-id etl

    The keys are Kafka's: producer_byte_rate and consumer_byte_rate in bytes per second,
    request_percentage of the time of a broker's thread, controller_mutation_rate in partitions made
    or deleted per second; for an ip connection_creation_rate, new connections per second. Each
    broker holds its clients to them for itself.

    The most specific limit counts: user and client id, user, client id; a name before the default.
    """


def entity_options(command: C) -> C:
    """The options that say whom a quota is for, as `entity`."""
    for option in (
        click.option("--ip", metavar="ADDRESS", help="Clients at an address."),
        click.option("--ip-default", is_flag=True, help="Addresses without a quota of their own."),
        click.option("--client-id", metavar="ID", help="Clients of this id."),
        click.option("--client-id-default", is_flag=True, help="Client ids without one."),
        click.option("--user", metavar="NAME", help="A user; ANONYMOUS who did not sign in."),
        click.option("--user-default", is_flag=True, help="Users without one."),
    ):
        command = option(command)
    return command


def _entity(options: Mapping[str, Any]) -> Entity:
    entity: dict[str, str | None] = {}
    for kind in ("user", "client_id", "ip"):
        name, is_default = options[kind], options[f"{kind}_default"]
        if name is not None and is_default:
            flag = "--" + kind.replace("_", "-")
            raise click.UsageError(f"give either {flag} or {flag}-default")
        if name is not None or is_default:
            entity[kind.replace("_", "-")] = name
    return entity


def _one_entity(options: Mapping[str, Any]) -> Entity:
    entity = _entity(options)
    if not entity:
        raise click.UsageError("say whom it is for: --user, --client-id or --ip")
    if "ip" in entity and len(entity) > 1:
        raise click.UsageError("--ip goes with neither --user nor --client-id")
    return entity


def entity_text(entity: Entity) -> str:
    """The entity as text, such as `client-id=etl,user=<default>`."""
    return ",".join(
        f"{kind}={DEFAULT if name is None else name}" for kind, name in sorted(entity.items())
    )


def _limits_of(
    ctx: click.Context, option: click.Parameter, values: Sequence[str]
) -> dict[str, float]:
    limits = {}
    for value in values:
        key, _, text = value.partition("=")
        if key not in KEYS:
            message = f"{value!r}: write KEY=NUMBER with one of {', '.join(KEYS)}"
            raise click.BadParameter(message, ctx=ctx, param=option)
        try:
            limits[key] = float(text)
        except ValueError:
            message = f"{value!r}: {text!r} is not a number"
            raise click.BadParameter(message, ctx=ctx, param=option) from None
    return limits


@quota.command()
@entity_options
@reading_options
def describe(*, output: Output, server: Server, **options: Any) -> None:
    """Show quotas: all, or those of the entities that have what the options name.

    \b
    logfleet quota describe
    logfleet quota describe --user alice -o json
    """
    entity = _entity(options)
    found = run(server, lambda client: describe_quotas(client, entity))
    found.sort(key=lambda each: entity_text(each.entity))

    def table() -> None:
        rows = [row for each in found for row in _rows(each)]
        echo_table(("ENTITY", "QUOTA", "LIMIT"), rows)

    document = [{"entity": each.entity, "limits": each.limits} for each in found]
    output.document(document, table, names=[entity_text(each.entity) for each in found])


def _rows(found: Quota) -> list[tuple[str, str, str]]:
    name = entity_text(found.entity)
    return [(name, key, f"{limit:.17g}") for key, limit in sorted(found.limits.items())]


@quota.command(name="set")
@click.argument("limits", nargs=-1, required=True, metavar="KEY=NUMBER...", callback=_limits_of)
@entity_options
@changing_options
def set_(
    limits: Mapping[str, float], *, dry_run: bool, output: Output, server: Server, **options: Any
) -> None:
    """Set limits; others that the entity has stay as they are.

    \b
    logfleet quota set --client-id etl producer_byte_rate=1048576
    logfleet quota set --user alice --client-id-default request_percentage=10
    """
    entity = _one_entity(options)

    async def one(client: Client, _name: str) -> str:
        await alter_quota(client, entity, set_=limits, validate_only=dry_run)
        return "set"

    change_each(server, KIND, [entity_text(entity)], one, output=output, dry_run=dry_run)


@quota.command()
@click.argument("keys", nargs=-1, type=click.Choice(KEYS), metavar="[KEY]...")
@entity_options
@yes_option
@changing_options
def delete(
    keys: tuple[str, ...],
    *,
    confirm: Callable[[str], None],
    dry_run: bool,
    output: Output,
    server: Server,
    **options: Any,
) -> None:
    """Delete limits of an entity: those named, or all it has.

    Asks first on a terminal; a script gives --yes.

    \b
    logfleet quota delete --client-id etl consumer_byte_rate
    logfleet quota delete --user-default --yes
    """
    entity = _one_entity(options)
    confirm(f"Delete {', '.join(keys) or 'all limits'} of {entity_text(entity)}?")

    async def one(client: Client, _name: str) -> str:
        found = await describe_quotas(client, entity, strict=True)
        present = {key for each in found for key in each.limits}
        named = present.intersection(keys) if keys else present
        if not named:
            return "unchanged"
        await alter_quota(client, entity, delete=sorted(named), validate_only=dry_run)
        return "deleted"

    change_each(server, KIND, [entity_text(entity)], one, output=output, dry_run=dry_run)
