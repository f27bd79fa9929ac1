"""The list of members of a small etcd in memory."""

import itertools
from collections.abc import Callable
from typing import Any

from logfleet_operator.clusters.defragmentation import MemberStatus
from logfleet_operator.clusters.etcd_client import Access, EtcdUnavailable
from logfleet_operator.clusters.observed import EtcdMember


class EtcdCluster:
    """Etcds for the Cluster `fleet`. unavailable, refused: why it does not answer, or change."""

    def __init__(self, call: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._call = call
        self._ids = itertools.count(10)
        self.unavailable = self.refused = ""
        self.listed = [
            EtcdMember(str(n), f"fleet-etcd-{n}", url(f"fleet-etcd-{n}")) for n in range(3)
        ]

        self.sizes = dict.fromkeys(range(3), (1 << 20, 1 << 20))
        self.no_space = False

    def join(self, name: str) -> None:
        """Start a member without data; unless it was added since, it votes with a lost log."""
        (entry,) = (each for each in self.listed if each.peer_url == url(name))
        assert entry.name == "", f"{name} is let in under its old id"
        self.listed = [
            EtcdMember(each.id, name, each.peer_url) if each is entry else each
            for each in self.listed
        ]

    async def members(self, access: Access) -> tuple[EtcdMember, ...]:
        found: tuple[EtcdMember, ...] = self._asked(
            "list members", access, lambda: tuple(self.listed)
        )
        return found

    async def remove(self, access: Access, member_id: str) -> None:
        def remove() -> None:
            self.listed = [each for each in self.listed if each.id != member_id]

        self._asked(f"remove member {member_id}", access, remove)

    async def add(self, access: Access, peer_url: str) -> None:
        def add() -> None:
            if any(each.peer_url == peer_url for each in self.listed):
                raise EtcdUnavailable("etcdserver: Peer URLs already exists")
            self.listed = [*self.listed, EtcdMember(str(next(self._ids)), "", peer_url)]

        self._asked(f"add member {peer_url}", access, add)

    async def status(self, access: Access, endpoint: str) -> MemberStatus:
        number = int(endpoint.partition(".")[0].rpartition("-")[2])
        size, used = self.sizes[number]
        found: MemberStatus = self._asked(
            "status", access, lambda: MemberStatus(endpoint, number == 0, size, used)
        )
        return found

    async def has_no_space(self, access: Access) -> bool:
        return bool(self._asked("list alarms", access, lambda: self.no_space))

    async def defragment(self, access: Access, endpoint: str) -> None:
        def defragment() -> None:
            number = int(endpoint.partition(".")[0].rpartition("-")[2])
            self.sizes[number] = (self.sizes[number][1],) * 2

        self._asked(f"defragment {endpoint}", access, defragment)

    async def disarm(self, access: Access) -> None:
        def disarm() -> None:
            self.no_space = False

        self._asked("disarm", access, disarm)

    def _asked(self, what: str, access: Access, act: Callable[[], Any]) -> Any:
        assert access.endpoints, "no member is ready"
        if self.unavailable or (self.refused and not what.startswith("list")):
            raise EtcdUnavailable(self.unavailable or self.refused)
        return self._call(what, act)


def url(name: str) -> str:
    return f"https://{name}.fleet-etcd.air.svc:2380"
