"""`logfleet drain`, `cordon` and `uncordon`, named as kubectl's commands for nodes."""

import click

from logfleet.balance.rebalancing import Goal, make_plan
from logfleet.cli.fleet.cluster import check_brokers
from logfleet.cli.fleet.rebalance import carry_out, goal, goal_options
from logfleet.cli.session import Server, run, server_options
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.cordons import set_cordons

IDS = click.argument("brokers", nargs=-1, required=True, type=click.IntRange(0), metavar="ID...")


@click.command()
@IDS
@server_options
def cordon(brokers: tuple[int, ...], *, server: Server) -> None:
    """Give brokers no new replicas, neither of new topics nor by a rebalance. What they have stays.

    Sets `cordoned.log.dirs=*` of each (KIP-1066); `logfleet uncordon` takes it back.

    \b
    logfleet cordon 4 5
    """
    _set(server, brokers, cordoned=True)


@click.command()
@IDS
@server_options
def uncordon(brokers: tuple[int, ...], *, server: Server) -> None:
    """Let brokers get replicas again. `logfleet rebalance run` gives them their share.

    \b
    logfleet uncordon 4 5
    """
    _set(server, brokers, cordoned=False)


@click.command()
@IDS
@goal_options
@server_options
def drain(
    brokers: tuple[int, ...],
    *,
    excluded: tuple[str, ...],
    per_broker: int,
    throttle: float,
    server: Server,
) -> None:
    """Cordon brokers, and move all their replicas to others, within the zones where possible.

    Partitions that fit nowhere else are named, and then nothing is changed; `logfleet may-i drain`
    asks without changing anything.

    Ends when they have no replicas left: then they can be stopped for good, and `kafka-cluster
    unregister --id ID` removes their registration. Ctrl-C leaves what is under way to the brokers;
    the same command goes on from there, `logfleet rebalance stop` and `logfleet uncordon` go back.

    \b
    logfleet drain 4 5 --throttle 20
    """
    wanted = goal(excluded, per_broker, throttle, brokers)
    _refuse_impossible(server, wanted)
    _set(server, brokers, cordoned=True)
    if not carry_out(server, wanted):
        ids = " ".join(map(str, brokers))
        raise click.ClickException(
            f"not all was moved, and cordons stay: `logfleet drain {ids}` goes on, `logfleet "
            f"uncordon {ids}` goes back"
        )


def _refuse_impossible(server: Server, wanted: Goal) -> None:
    """Exit with an error, before any change, if some replicas have no other place."""

    async def work(client: Client) -> tuple[str, ...]:
        await check_brokers(client, wanted.leaving)
        return (await make_plan(client, wanted)).unmet

    unmet = run(server, work)
    for each in unmet:
        click.echo(f"Error: {each}", err=True)
    if unmet:
        raise click.ClickException("nothing was changed: not all can be moved away")


def _set(server: Server, brokers: tuple[int, ...], *, cordoned: bool) -> None:
    async def work(client: Client) -> None:
        await check_brokers(client, brokers)
        await set_cordons(Admin(client), brokers, cordoned=cordoned)

    run(server, work)
    for each in brokers:
        click.echo(f"broker {each} {'cordoned' if cordoned else 'uncordoned'}")
