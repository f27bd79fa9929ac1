"""Maintenance of a managed etcd: defragments its members in turn, ends the alarm NOSPACE. PURE.

The brokers compact; etcd reuses the space that a compaction frees only within its file.
Defragmenting returns it to the disk, and stops the member meanwhile (etcd, Maintenance). Above its
quota etcd raises NOSPACE, and takes writes again only after that alarm is disarmed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Defragment files that are more than half empty and at least this large.
FRAGMENTED_BYTES_MIN: Final = 64 << 20
FULL_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """endpoint: https://HOST:PORT. size, used: bytes of the database file, and those in use."""

    endpoint: str
    leads: bool
    size: int
    used: int


@dataclass(frozen=True, slots=True)
class Defragment:
    """Defragment the member behind this endpoint."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class DisarmNoSpace:
    """End the alarm NOSPACE: there is space again."""


def next_step(
    members: Sequence[MemberStatus], *, no_space: bool, quota_bytes: int
) -> Defragment | DisarmNoSpace | None:
    """The next step, or None.

    members: all of them; each has answered, since only one may be stopped at a time. The leader is
    defragmented last.
    """
    fragmented = [
        member
        for member in members
        if member.size >= FRAGMENTED_BYTES_MIN and member.used * 2 < member.size
    ]
    if fragmented:
        chosen = min(fragmented, key=lambda member: (member.leads, member.endpoint))
        return Defragment(chosen.endpoint)
    if no_space and all(member.size < quota_bytes * FULL_SHARE for member in members):
        return DisarmNoSpace()
    return None


def warning(members: Sequence[MemberStatus], *, no_space: bool, quota_bytes: int) -> str:
    """A warning about the size of the database; "" for none."""
    used = max((member.used for member in members), default=0)
    sentence = f"etcd uses {used >> 20} MiB of its {quota_bytes >> 20} MiB"
    if no_space:
        return (
            f"{sentence} and takes no writes (alarm NOSPACE): nothing of the Cluster can change "
            "until there is room"
        )
    return (
        f"{sentence}: delete topics or groups that nobody needs"
        if used > quota_bytes * FULL_SHARE
        else ""
    )
