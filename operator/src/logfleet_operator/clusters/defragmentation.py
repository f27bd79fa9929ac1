"""What a managed etcd needs now and then: its members defragmented one by one, its alarm of no space ended. PURE.

etcd frees what a compaction leaves (the brokers compact) within its file only; defragmenting gives it back, and stops the member
meanwhile (etcd, Maintenance). Above its quota etcd raises NOSPACE, and takes writes again only once that is disarmed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# A file that is more than half empty, and so large that it matters.
FRAGMENTED_BYTES_MIN: Final = 64 << 20
FULL_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """endpoint: https://HOST:PORT. size, used: bytes of the database file, and of it in use."""

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
    """members: all of them, each of which answered: one that is stopped must be the only one. The leader goes last."""
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
    """What a person should know of its size; "" for nothing."""
    used = max((member.used for member in members), default=0)
    said = f"etcd uses {used >> 20} MiB of its {quota_bytes >> 20} MiB"
    if no_space:
        return f"{said} and takes no writes (alarm NOSPACE): nothing of the Cluster can change until there is room"
    return (
        f"{said}: delete topics or groups that nobody needs"
        if used > quota_bytes * FULL_SHARE
        else ""
    )
