"""All checks, and running them. PURE."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from logfleet.checks import availability, brokers, clients, durability, groups, topics
from logfleet.checks.finding import Check, Finding, Severity, counted
from logfleet.checks.snapshot import Snapshot

CHECKS: Final[tuple[Check, ...]] = (
    *availability.CHECKS,
    *durability.CHECKS,
    *groups.CHECKS,
    *brokers.CHECKS,
    *clients.CHECKS,
    *topics.CHECKS,
)
SEVERITIES: Final = tuple(Severity)


class Skipped(NamedTuple):
    """A check that could not be made, and why."""

    check: Check
    reason: str


def chosen(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Check]:
    """Checks whose codes begin with one of `select` (all, if it is empty) and none of `ignore`.

    Raises ValueError for a beginning that no code has.
    """
    for prefix in (*select, *ignore):
        if not prefix or not any(each.code.startswith(prefix) for each in CHECKS):
            raise ValueError(f"no code begins with {prefix!r}; they are LF101 to {CHECKS[-1].code}")
    return [
        each
        for each in CHECKS
        if each.code.startswith(tuple(select) or "LF")
        and not (ignore and each.code.startswith(tuple(ignore)))
    ]


def run(fleet: Snapshot, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """What the checks find, the worst first, then by code and subject."""
    found = [
        finding
        for each in checks
        if each.not_checked(fleet) is None
        for finding in each.findings(fleet)
    ]
    return sorted(
        found, key=lambda each: (SEVERITIES.index(each.severity), each.code, each.subject)
    )


def skipped(fleet: Snapshot, checks: Sequence[Check] = CHECKS) -> list[Skipped]:
    """The checks that could not be made."""
    reasons = ((each, each.not_checked(fleet)) for each in checks)
    return [Skipped(each, reason) for each, reason in reasons if reason is not None]


def counts(findings: Sequence[Finding]) -> str:
    """Numbers by severity: 1 error, 3 warnings, 1 hint; "nothing found" if there are none."""
    found = Counter(each.severity for each in findings)
    parts = [counted(found[each], each.value) for each in SEVERITIES if found[each]]
    return ", ".join(parts) or "nothing found"


def headline(findings: Sequence[Finding]) -> str:
    """The state of the fleet in one sentence: the first finding, and how many there are."""
    serious = [each for each in findings if each.severity is not Severity.HINT]
    if not serious:
        return "all is well" if not findings else f"all is well, with {counts(findings)}"
    more = len(serious) - 1
    return f"{serious[0]}" + (f" (and {counted(more, 'finding')} more)" if more else "")
