"""`logfleet check`: what is wrong with a fleet, and the command that mends it."""

import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

import click
import msgspec

from logfleet.checks.docs import explained
from logfleet.checks.finding import Check, Finding, Severity, counted
from logfleet.checks.gathering.fleet import SECONDS_MAX, gather_snapshot
from logfleet.checks.snapshot import Snapshot
from logfleet.checks.table import CHECKS, Skipped, chosen, counts, skipped
from logfleet.checks.table import run as run_checks
from logfleet.cli.fleet.admin_port import ask_registered
from logfleet.cli.output.formats import Output
from logfleet.cli.session import Server, reading_options, run
from logfleet.client.cluster import Client

SHOWN_MAX: Final = 5
"""Findings of one code on a terminal without -v."""
COLOURS: Final = {"error": "red", "warning": "yellow", "hint": "cyan"}


def _known(ctx: click.Context, option: click.Parameter, code: str | None) -> Check | None:
    if code is None:
        return None
    found = {each.code: each for each in CHECKS}
    if code.upper() not in found:
        near = ", ".join(get_close_matches(code.upper(), found))
        hint = f"do you mean {near}?" if near else f"they are LF101 to {CHECKS[-1].code}"
        raise click.BadParameter(f"there is no {code}; {hint}", ctx=ctx, param=option)
    return found[code.upper()]


def _codes(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """Codes or their beginnings, from several options and separated by commas."""
    prefixes = [each.strip().upper() for value in values for each in value.split(",")]
    try:
        chosen(prefixes)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error
    return prefixes


@click.command()
@click.option(
    "--explain",
    metavar="CODE",
    callback=_known,
    help="Only print what a code means.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    callback=_codes,
    help="Check only these, as LF1,LF302: codes or their beginnings.",
)
@click.option(
    "--ignore", multiple=True, metavar="CODES", callback=_codes, help="Leave these out, likewise."
)
@click.option("--strict", is_flag=True, help="Exit with 1 also if there are only warnings.")
@click.option("-v", "--verbose", is_flag=True, help="List every finding, and what was checked.")
@reading_options
def check(
    *,
    explain: Check | None,
    select: list[str],
    ignore: list[str],
    strict: bool,
    verbose: bool,
    output: Output,
    server: Server,
) -> None:
    """Check whether a fleet is ready for production: what is wrong, or will be, and how to mend it.

    Brokers, topics, groups and disks are asked by Kafka's protocol, so an Apache Kafka can be
    checked, too. Clocks, file descriptors and traffic are asked at the admin ports. What cannot be
    asked is listed as not checked. Nothing is changed.

    \b
    logfleet check
    logfleet check --ignore LF5,LF6 --strict
    logfleet check --explain LF103
    logfleet check -o json | jq -r '.findings[].remedy'

    Exit codes: 0 no errors, 1 errors (with --strict also warnings), or no broker could be asked, 2
    the command line is wrong.
    """
    if explain is not None:
        click.echo(explained(explain))
        return
    checks = chosen(select, ignore)
    begin_s = time.monotonic()
    fleet = run(server, partial(_snapshot, min(SECONDS_MAX, server.timeout_seconds)))
    seconds = time.monotonic() - begin_s
    found = [_with_address(each, server) for each in run_checks(fleet, checks)]
    missing = skipped(fleet, checks)

    def text() -> None:
        _echo(fleet, found, seconds, verbose=verbose)
        _echo_rest(found, checks, missing, fleet, verbose=verbose)

    codes = dict.fromkeys(each.code for each in found)
    output.document(_as_json(fleet, found, checks, missing), text, names=codes)
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(each.severity in failing for each in found):
        sys.exit(1)


async def _snapshot(seconds_max: float, client: Client) -> Snapshot:
    return await gather_snapshot(client, ask_admin=ask_registered, seconds_max=seconds_max)


def _with_address(found: Finding, server: Server) -> Finding:
    """With the address in its command, unless the command would find it by itself."""
    if not server.flags or not found.remedy.startswith("logfleet "):
        return found
    remedy = " ".join([found.remedy, *server.flags])
    return msgspec.structs.replace(found, remedy=remedy)


def _as_json(
    fleet: Snapshot, found: Sequence[Finding], checks: Sequence[Check], missing: Sequence[Skipped]
) -> dict[str, Any]:
    without = {each.code for each in found} | {each.check.code for each in missing}
    return {
        "cluster": fleet.cluster_id,
        "findings": [msgspec.to_builtins(each) for each in found],
        "passed": [each.code for each in checks if each.code not in without],
        "not_checked": [{"code": each.check.code, "reason": each.reason} for each in missing],
        "gaps": [msgspec.to_builtins(each) for each in fleet.gaps],
    }


def _echo(fleet: Snapshot, found: Sequence[Finding], seconds: float, *, verbose: bool) -> None:
    partitions = sum(len(topic.partitions) for topic in fleet.topics.values())
    parts = [counted(len(fleet.brokers), "broker")]
    parts += [counted(len(fleet.zones), "zone")] if fleet.zones else []
    parts += [counted(partitions, "partition")]
    click.echo(f"cluster {fleet.cluster_id}: {', '.join(parts)}  ({seconds:.1f} s)")
    shown: dict[str, int] = {}
    for each in found:
        shown[each.code] = shown.get(each.code, 0) + 1
        if verbose or shown[each.code] <= SHOWN_MAX:
            label = click.style(f"{each.severity:<7}", fg=COLOURS[each.severity])
            click.echo(f"{label}  {each.code}  {each}")
            click.echo(f"{'':16}{each.remedy}")
    hidden = {code: count - SHOWN_MAX for code, count in shown.items() if count > SHOWN_MAX}
    if hidden and not verbose:
        more = ", ".join(f"{count} of {code}" for code, count in hidden.items())
        click.echo(f"and {more} more: -v lists them")


def _echo_rest(
    found: Sequence[Finding],
    checks: Sequence[Check],
    missing: Sequence[Skipped],
    fleet: Snapshot,
    *,
    verbose: bool,
) -> None:
    without = {each.code for each in found} | {each.check.code for each in missing}
    passed = [each for each in checks if each.code not in without]
    if verbose:
        for each in passed:
            click.echo(f"passed   {each.code}  {each.title}")
        for gap in fleet.gaps:
            if gap.broker is not None:
                click.echo(f"broker {gap.broker} did not report {gap.part}: {gap.reason}")
    by_reason: dict[str, list[str]] = {}
    for one in missing:
        by_reason.setdefault(one.reason, []).append(one.check.code)
    for reason, codes in by_reason.items():
        click.echo(f"not checked: {', '.join(codes)} ({reason})")
    click.echo(f"{counts(found)}; {counted(len(passed), 'check')} passed")
