"""`logfleet drain`, `cordon` and `uncordon`, named as kubectl's commands for nodes."""

import click

from logfleet.balance.load import Plan
from logfleet.balance.rebalancing import Goal, make_plan
from logfleet.cli.fleet.cluster import BROKER_IDS, check_brokers
from logfleet.cli.fleet.rebalance import carry_out, echo_step, goal, goal_options, show_plan
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import change_each
from logfleet.cli.session import Server, changing_options, run
from logfleet.client.admin import Admin
from logfleet.client.brokers.cordons import cordoned_brokers, set_cordons
from logfleet.client.cluster import Client


@click.command()
@BROKER_IDS
@changing_options
def cordon(brokers: tuple[int, ...], *, dry_run: bool, output: Output, server: Server) -> None:
    """Give brokers no new replicas, neither of new topics nor by a rebalance. What they have stays.

    Sets `cordoned.log.dirs=*` of each (KIP-1066); `logfleet uncordon` takes it back.

    \b
    logfleet cordon 4 5
    """
    _set(server, brokers, cordoned=True, dry_run=dry_run, output=output)


@click.command()
@BROKER_IDS
@changing_options
def uncordon(brokers: tuple[int, ...], *, dry_run: bool, output: Output, server: Server) -> None:
    """Let brokers get replicas again. `logfleet rebalance run` gives them their share.

    \b
    logfleet uncordon 4 5
    """
    _set(server, brokers, cordoned=False, dry_run=dry_run, output=output)


@click.command()
@BROKER_IDS
@goal_options
@changing_options
def drain(
    brokers: tuple[int, ...],
    *,
    excluded: tuple[str, ...],
    per_broker: int,
    throttle: float,
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Cordon brokers, and move all their replicas to others, within the zones where possible.

    Partitions that fit nowhere else are named, and then nothing is changed; `logfleet may-i drain`
    asks without changing anything. With -o json each line of progress is an object.

    Ends when they have no replicas left: then they can be stopped for good, and `kafka-cluster
    unregister --id ID` removes their registration. Ctrl-C leaves what is under way to the brokers;
    the same command goes on from there, `logfleet rebalance stop` and `logfleet uncordon` go back.

    \b
    logfleet drain 4 5 --throttle 20
    """
    wanted = goal(excluded, per_broker, throttle, brokers)
    made = _possible_plan(server, wanted)
    if dry_run:
        show_plan(made, output, dry_run=True)
        return
    run(server, lambda client: set_cordons(Admin(client), brokers, cordoned=True))
    ids = " ".join(map(str, brokers))
    echo_step(output, f"cordoned: {ids}", cordoned=list(brokers))
    if not carry_out(server, wanted, output):
        raise click.ClickException(
            f"not all was moved, and cordons stay: `logfleet drain {ids}` goes on, `logfleet "
            f"uncordon {ids}` goes back"
        )


def _possible_plan(server: Server, wanted: Goal) -> Plan:
    """The plan. Raises ClickException, before any change, if some replicas have no other place."""

    async def work(client: Client) -> Plan:
        await check_brokers(client, wanted.leaving)
        return await make_plan(client, wanted)

    made = run(server, work)
    for each in made.unmet:
        click.echo(f"Error: {each}", err=True)
    if made.unmet:
        raise click.ClickException("nothing was changed: not all can be moved away")
    return made


def _set(
    server: Server, brokers: tuple[int, ...], *, cordoned: bool, dry_run: bool, output: Output
) -> None:
    async def one(client: Client, name: str) -> str:
        await check_brokers(client, brokers)  # all of them, before the first is changed
        admin, broker = Admin(client), int(name)
        if (broker in await cordoned_brokers(admin, [broker])) == cordoned:
            return "unchanged"
        if not dry_run:
            await set_cordons(admin, [broker], cordoned=cordoned)
        return "cordoned" if cordoned else "uncordoned"

    change_each(server, "broker", list(map(str, brokers)), one, output=output, dry_run=dry_run)
