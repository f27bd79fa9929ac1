"""Checks of brokers: disks, file descriptors, clocks, versions, levels. PURE."""

from collections.abc import Iterator
from typing import Final

from logfleet.checks.finding import Check, Found, Severity, check, counted, listed
from logfleet.checks.snapshot import Broker, Part, Snapshot
from logfleet.controller.brokers.cordons import CORDONED, is_whole

DISK_WARNING: Final = 0.80
DISK_ERROR: Final = 0.95
"""Shares of a disk in use. A full disk takes its log directory out of service."""
DESCRIPTORS_WARNING: Final = 0.70
"""Share of the limit; segments and connections come in bursts."""
CLOCK_S_MAX: Final = 2.0
"""Kafka needs no more; HTTP gives times in whole seconds."""
GIB: Final = 1 << 30


def named(broker: Broker) -> str:
    return f"broker {broker.id}"


@check("LF401", Severity.ERROR, Part.DISKS)
def failed_directory(fleet: Snapshot) -> Iterator[Found]:
    """Failed log directories.

    The broker does not use the directory any more. Replicas in it are missing, and those with one
    replica are offline.

    Mend or replace the disk and restart the broker; it copies what was there from the leaders.
    """
    for broker in fleet.brokers:
        for directory in broker.directories or ():
            if directory.error is not None:
                sentence = f"{directory.path} has failed ({directory.error})"
                yield Found(named(broker), sentence, f"logfleet events --broker {broker.id}")


@check("LF402", Severity.WARNING, Part.DISKS)
def full_disk(fleet: Snapshot) -> Iterator[Found]:
    """Disks that are nearly full.

    More than 80 % of the disk is in use, or 95 % (an error). A broker refuses records before its
    disk is full; an Apache Kafka stops.

    Shorten the retention of the largest topics, enlarge the disk, or add brokers and rebalance.
    """
    for broker in fleet.brokers:
        for each in broker.directories or ():
            if not each.total or each.usable is None:
                continue
            used = 1 - each.usable / each.total
            if used >= DISK_WARNING:
                left = f"{each.usable / GIB:,.1f} GiB left"
                yield Found(
                    named(broker),
                    f"the disk of {each.path} is {used:.0%} full, {left}",
                    f"logfleet log-dirs --broker {broker.id}",
                    Severity.ERROR if used >= DISK_ERROR else None,
                )


@check("LF403", Severity.WARNING, Part.METRICS)
def few_descriptors(fleet: Snapshot) -> Iterator[Found]:
    """File descriptors are running out.

    The broker has more than 70 % of its file descriptors in use. Without any left it accepts no
    connection and opens no segment.

    Raise the limit (`ulimit -n`, `LimitNOFILE` of systemd) and restart the broker. Larger segments
    and fewer partitions need fewer.
    """
    for broker in fleet.brokers:
        readings = broker.readings
        if readings is None or readings.files_open is None or not readings.files_max:
            continue
        used = readings.files_open / readings.files_max
        if used >= DESCRIPTORS_WARNING:
            limit = f"{readings.files_open:,.0f} of {readings.files_max:,.0f}"
            sentence = f"{limit} file descriptors are in use"
            yield Found(named(broker), sentence, "raise the limit (ulimit -n) and restart")


@check("LF404", Severity.WARNING, Part.CLOCKS)
def clocks_differ(fleet: Snapshot) -> Iterator[Found]:
    """Clocks differ.

    Two brokers' clocks are more than 2 s apart. Retention by time, timestamps that brokers give,
    and the order of decisions in `logfleet events` go by their clocks.

    Let a time service (chrony, systemd-timesyncd) run on every machine.
    """
    ahead = {b.id: b.clock_ahead_s for b in fleet.brokers if b.clock_ahead_s is not None}
    if len(ahead) < 2:
        return
    # the clock in the middle is taken for right: most machines have a time service
    middle = sorted(ahead.values())[(len(ahead) - 1) // 2]
    for broker, seconds in ahead.items():
        if abs(seconds - middle) > CLOCK_S_MAX:
            by = f"{abs(seconds - middle):,.0f} s {'ahead' if seconds > middle else 'behind'}"
            yield Found(f"broker {broker}", f"its clock is {by}", "timedatectl set-ntp true")


@check("LF405", Severity.WARNING, Part.BROKERS)
def versions_differ(fleet: Snapshot) -> Iterator[Found]:
    """Brokers of different versions.

    Brokers do not speak the same versions of the protocol, so their software differs. Clients see
    other features after a reconnect.

    While an upgrade runs that is right. Otherwise some brokers were left out: upgrade them too.
    """
    kinds: dict[object, list[str]] = {}
    for broker in fleet.active:
        if broker.apis is not None:
            kinds.setdefault(tuple(sorted(broker.apis.items())), []).append(str(broker.id))
    if len(kinds) > 1:
        few = min(kinds.values(), key=len)
        sentence = "unlike the others: another version of the software"
        subject = f"broker{'s' if few[1:] else ''} {listed(few)}"
        yield Found(subject, sentence, "logfleet may-i roll")


@check("LF406", Severity.HINT, Part.FEATURES)
def level_behind(fleet: Snapshot) -> Iterator[Found]:
    """The feature level is behind.

    All brokers support a higher level of `logfleet.version` than the fleet has. What it brings,
    such as transactions from level 3 on, is off until it is raised.

    Raise it once the upgrade has proved itself: it cannot be lowered again.
    """
    if fleet.level is not None and fleet.level.possible > fleet.level.finalized:
        now, possible = fleet.level.finalized, fleet.level.possible
        sentence = f"feature level {now}, and all brokers support {possible}"
        yield Found("fleet", sentence, f"logfleet features upgrade {fleet.level.possible}")


@check("LF407", Severity.HINT, Part.BROKERS)
def cordoned(fleet: Snapshot) -> Iterator[Found]:
    """Cordoned brokers.

    The broker gets no new replicas. `logfleet cordon` and `logfleet drain` do that, and nothing
    undoes it.

    If the broker is to stay, uncordon it.
    """
    for broker in fleet.brokers:
        if is_whole((broker.config or {}).get(CORDONED)):
            remedy = f"logfleet uncordon {broker.id}"
            yield Found(named(broker), "cordoned: it gets no new replicas", remedy)


@check("LF408", Severity.WARNING, Part.METRICS)
def late_transactions(fleet: Snapshot) -> Iterator[Found]:
    """Transactions that hang.

    A transaction is open for longer than any may be. Consumers that read only committed records
    wait before it, and compaction stops there.

    Find its partition and producer, and abort it.
    """
    for broker in fleet.brokers:
        count = int((broker.readings and broker.readings.late_transactions) or 0)
        if count:
            sentence = f"transactions hang in {counted(count, 'partition')} that it leads"
            yield Found(named(broker), sentence, "logfleet transaction find-hanging")


CHECKS: Final[tuple[Check, ...]] = (
    failed_directory,
    full_disk,
    few_descriptors,
    clocks_differ,
    versions_differ,
    level_behind,
    cordoned,
    late_transactions,
)
