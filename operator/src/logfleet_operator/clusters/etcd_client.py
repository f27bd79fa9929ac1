"""Lists and changes the members of a managed etcd, by its JSON gateway. SHELL.

It uses the brokers' certificate. The messages are etcd's own (api/v3, rpc.proto) as JSON: 64 bit
numbers are strings, empty fields are left out.
"""

import base64
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import aiohttp
from logfleet.resources.cluster import ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters.defragmentation import MemberStatus
from logfleet_operator.clusters.observed import EtcdMember, ObservedCluster
from logfleet_operator.lease_holder import LeaseHolder, LeaseLost
from logfleet_operator.tls import lenient
from logfleet_operator.waiting import waiting_for_fleet

ANSWER_S_MAX: Final = 3.0
NO_SPACE: Final = "NOSPACE"


class EtcdUnavailable(Exception):
    """No member answered, or etcd refuses now: no change of members without a healthy majority."""


@dataclass(frozen=True, slots=True)
class Access:
    """endpoints: https://HOST:PORT of ready members. The rest is PEM."""

    endpoints: tuple[str, ...]
    authority: bytes
    certificate: bytes
    key: bytes


class Etcds(Protocol):
    """The managed etcds. All methods raise EtcdUnavailable."""

    async def members(self, access: Access) -> tuple[EtcdMember, ...]:
        """The members, by a linearizable read."""
        ...

    async def remove(self, access: Access, member_id: str) -> None: ...

    async def add(self, access: Access, peer_url: str) -> None: ...

    async def status(self, access: Access, endpoint: str) -> MemberStatus: ...

    async def has_no_space(self, access: Access) -> bool:
        """Whether a member has raised the alarm NOSPACE."""
        ...

    async def defragment(self, access: Access, endpoint: str) -> None:
        """Defragment one member; it answers nobody meanwhile."""
        ...

    async def disarm(self, access: Access) -> None:
        """End the alarm NOSPACE of all members."""
        ...


def etcd_access(cluster: ClusterResource, observed: ObservedCluster) -> Access:
    """Return the access to the Cluster's etcd.

    Raises EtcdUnavailable if the Secret is missing or incomplete.
    """
    service = names.etcd_name(cluster.metadata.name)
    secret = observed.get("Secret", names.etcd_secret(cluster.metadata.name, "client"))
    data = (secret or {}).get("data") or {}
    try:
        pems = [base64.b64decode(data[file]) for file in ("ca.crt", "tls.crt", "tls.key")]
    except (KeyError, ValueError) as error:
        raise EtcdUnavailable(f"the client's Secret is not whole: {error!r}") from error
    endpoints = tuple(
        f"https://{pod.name}.{service}.{cluster.metadata.namespace}.svc:{names.ETCD_CLIENT_PORT}"
        for pod in observed.of_component(names.ETCD)
        if pod.ready and not pod.deleting
    )
    return Access(endpoints, *pems)


class EtcdClients:
    """Etcds over HTTP. leadership: the Lease that changes need, None without one."""

    def __init__(self, leadership: LeaseHolder | None) -> None:
        self._leadership = leadership

    async def members(self, access: Access) -> tuple[EtcdMember, ...]:
        answer = await _call(access, "/v3/cluster/member/list", {"linearizable": True})
        return tuple(
            EtcdMember(each["ID"], each.get("name", ""), each["peerURLs"][0])
            for each in answer["members"]
        )

    async def remove(self, access: Access, member_id: str) -> None:
        await self._change(access, "/v3/cluster/member/remove", {"ID": member_id})

    async def add(self, access: Access, peer_url: str) -> None:
        await self._change(access, "/v3/cluster/member/add", {"peerURLs": [peer_url]})

    async def status(self, access: Access, endpoint: str) -> MemberStatus:
        answer = await _call(_only(access, endpoint), "/v3/maintenance/status", {})
        return MemberStatus(
            endpoint,
            leads=answer["leader"] == answer["header"]["member_id"],
            size=int(answer["dbSize"]),
            used=int(answer["dbSizeInUse"]),
        )

    async def has_no_space(self, access: Access) -> bool:
        answer = await _call(access, "/v3/maintenance/alarm", {"action": "GET"})
        return any(each.get("alarm") == NO_SPACE for each in answer.get("alarms", ()))

    async def defragment(self, access: Access, endpoint: str) -> None:
        await self._change(_only(access, endpoint), "/v3/maintenance/defragment", {})

    async def disarm(self, access: Access) -> None:
        answer = await _call(access, "/v3/maintenance/alarm", {"action": "GET"})
        for each in answer.get("alarms", ()):
            if each.get("alarm") == NO_SPACE:
                await self._change(
                    access, "/v3/maintenance/alarm", {**each, "action": "DEACTIVATE"}
                )

    async def _change(self, access: Access, path: str, body: Mapping[str, Any]) -> None:
        if self._leadership is None:
            await _call(access, path, body)
            return
        try:
            async with self._leadership.guard():
                await _call(access, path, body)
        except LeaseLost as error:
            raise EtcdUnavailable(str(error)) from error


def _only(access: Access, endpoint: str) -> Access:
    return replace(access, endpoints=(endpoint,))


async def _call(access: Access, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The first response.

    Once sent, a request is not sent to another member: it may have been done.
    """
    timeout = aiohttp.ClientTimeout(total=ANSWER_S_MAX)
    reason = "no member is ready"
    connector = aiohttp.TCPConnector(ssl=_context(access))
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for endpoint in access.endpoints:
            try:
                with waiting_for_fleet():
                    async with session.post(endpoint + path, json=body) as response:
                        answer = await response.json(content_type=None)
            except aiohttp.ClientConnectorError as error:
                reason = str(error)
                continue
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise EtcdUnavailable(f"{endpoint}: {error!r}") from error
            if response.status == 200 and isinstance(answer, dict):
                return answer
            raise EtcdUnavailable(f"{endpoint}: HTTP {response.status}: {answer}")
    raise EtcdUnavailable(reason)


def _context(access: Access) -> ssl.SSLContext:
    try:
        # An authority that a user provides in a Secret need not be as strict as ours.
        context = lenient(ssl.create_default_context(cadata=access.authority.decode()))
        # Python reads keys only from files.
        with tempfile.NamedTemporaryFile() as file:
            file.write(access.certificate + b"\n" + access.key)
            file.flush()
            context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise EtcdUnavailable(f"the client's certificate cannot be used: {error}") from error
    return context
