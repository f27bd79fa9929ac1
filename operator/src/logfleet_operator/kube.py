"""The Kubernetes API, as little of it as the operator uses, on plain mappings.

Typed models are not used: they refuse responses of servers older or newer than themselves.
Writes are server-side applies of whole objects by one field manager: what a manifest no longer
contains is removed, fields of other managers stay. Objects that may exist only once are created.

    KubeError            an answer that is not success: status, reason, message of the API server;
                         also a Status that says Failure under HTTP's 2xx, as client-go reads it (an
                         eviction where two budgets cover the pod; pod/storage/eviction.go)
    └ KubeConflict       409: the object is not as it was when read
    KubeUnavailable      no answer (connection, timeout), or one that says to try again (429, 5xx)
"""

import json
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp

from logfleet_operator.credentials import Connection
from logfleet_operator.names import FIELD_MANAGER, Manifest

REQUEST_TIMEOUT_S: Final = 30
CONNECT_TIMEOUT_S: Final = 5
# The kubelet replaces a service account's token long before it ends (BoundServiceAccountTokens).
TOKEN_READ_S: Final = 60.0


class KubeError(Exception):
    """status: the HTTP status. reason: Kubernetes's name of it, such as NotFound."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message or reason)
        self.status = status
        self.reason = reason


class KubeConflict(KubeError):
    """Somebody else wrote the object since it was read."""


Refused = dict[tuple[str, str], KubeError]
"""(kind, name) -> why the API server refuses the object; the other objects are still written."""


class KubeUnavailable(Exception):
    """No response, or one that says to retry."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The API's path for objects of a kind."""

    path: str
    plural: str
    namespaced: bool = True


KINDS: Final[Mapping[str, Kind]] = {
    "Cluster": Kind("apis/logfleet.dev/v1beta1", "clusters"),
    "Topic": Kind("apis/logfleet.dev/v1beta1", "topics"),
    "Rebalance": Kind("apis/logfleet.dev/v1beta1", "rebalances"),
    "ConfigMap": Kind("api/v1", "configmaps"),
    "PersistentVolumeClaim": Kind("api/v1", "persistentvolumeclaims"),
    "Pod": Kind("api/v1", "pods"),
    "Secret": Kind("api/v1", "secrets"),
    "Service": Kind("api/v1", "services"),
    "ServiceAccount": Kind("api/v1", "serviceaccounts"),
    "StatefulSet": Kind("apis/apps/v1", "statefulsets"),
    "CronJob": Kind("apis/batch/v1", "cronjobs"),
    "PodDisruptionBudget": Kind("apis/policy/v1", "poddisruptionbudgets"),
    "Event": Kind("apis/events.k8s.io/v1", "events"),
    "Lease": Kind("apis/coordination.k8s.io/v1", "leases"),
    "Namespace": Kind("api/v1", "namespaces", namespaced=False),
    "Node": Kind("api/v1", "nodes", namespaced=False),
    "StorageClass": Kind("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "CustomResourceDefinition": Kind(
        "apis/apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False
    ),
}


class Kube(Protocol):
    """The requests that reconcilers make.

    Every read is a quorum read (no resourceVersion is given).
    """

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None if there is none. namespace: "" for kinds without one."""
        ...

    async def list(
        self, kind: str, namespace: str, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """All objects of a kind, each with its `kind`; namespace: "" for all."""
        ...

    async def create(self, manifest: Manifest) -> None:
        """Create a new object. Raises KubeConflict if it exists."""
        ...

    async def apply(self, manifest: Manifest) -> Manifest:
        """Create or change the object to match `manifest`, taking over fields of other managers.

        Returns the object.
        """
        ...

    async def apply_status(self, manifest: Manifest) -> None:
        """As `apply`, for the status only."""
        ...

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object with this uid, if it is still there."""
        ...

    async def evict_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Evict the pod with this uid; False if a disruption budget does not allow it now."""
        ...


class ApiServer:
    """Kube over HTTP. credentials: called at the start, and every TOKEN_READ_S for new tokens.

    Must be created within a running event loop.
    """

    def __init__(self, credentials: Callable[[], Connection]) -> None:
        self._credentials = credentials
        first = credentials()
        self._server = first.server.rstrip("/")
        self._headers = first.as_http_headers()
        self._read_at = time.monotonic()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=first.as_ssl_context()),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    async def close(self) -> None:
        await self._session.close()

    def _authorization(self) -> dict[str, str]:
        now = time.monotonic()
        if now - self._read_at >= TOKEN_READ_S:
            self._headers, self._read_at = self._credentials().as_http_headers(), now
        return self._headers

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._call("GET", _path(kind, namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: str, namespace: str, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        query = {"labelSelector": selector} if selector else {}
        found = await self._call("GET", _path(kind, namespace), query)
        version = found["apiVersion"]
        # Items of a list come without their own kind.
        return [{"apiVersion": version, "kind": kind, **item} for item in found["items"]]

    async def create(self, manifest: Manifest) -> None:
        path = _path(manifest["kind"], manifest["metadata"]["namespace"])
        await self._call("POST", path, {"fieldManager": FIELD_MANAGER}, manifest)

    async def apply(self, manifest: Manifest) -> Manifest:
        return await self._apply(manifest, "")

    async def apply_status(self, manifest: Manifest) -> None:
        await self._apply(manifest, "/status")

    async def _apply(self, manifest: Manifest, subresource: str) -> Manifest:
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._call(
            "PATCH", path + subresource, query, manifest, "application/apply-patch+yaml"
        )

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", _path(kind, namespace, name), {}, body)
        except KubeError as error:
            if error.status not in {404, 409}:
                raise

    async def evict_pod(self, namespace: str, name: str, uid: str) -> bool:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._call("POST", _path("Pod", namespace, name) + "/eviction", {}, body)
        except KubeUnavailable as error:
            if getattr(error.__cause__, "status", 0) == 429:
                return False
            raise
        except KubeError as error:
            if error.status not in {404, 409}:
                raise
        return True

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = self._session.request(
            method,
            self._server + path,
            params=query,
            headers=headers | self._authorization(),
            data=None if body is None else json.dumps(body),
        )
        try:
            async with request as response:
                data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailable(f"{method} {path}: {error!r}") from error
        if 200 <= response.status < 300:
            answer = json.loads(data)
            assert isinstance(answer, dict)
            if answer.get("kind") == "Status" and answer.get("status") == "Failure":
                # A final failure, whatever the code: a retry would get the same.
                raise KubeError(
                    int(answer.get("code", 500)),
                    str(answer.get("reason", "")),
                    f"{answer.get('message', '')} ({method} {path})",
                )
            return answer
        raise _error(response.status, data, f"{method} {path}")


def _path(kind: str, namespace: str, name: str = "") -> str:
    found = KINDS[kind]
    parts = ["", found.path]
    if found.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(found.plural)
    if name:
        parts.append(urllib.parse.quote(name))
    return "/".join(parts)


def _error(status: int, data: bytes, what: str) -> Exception:
    """The exception for a failed response; 429 and 5xx mean retry."""
    try:
        answer: Any = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        answer = {"message": data[:200].decode(errors="replace")}
    reason, message = str(answer.get("reason", "")), str(answer.get("message", ""))
    kind = KubeConflict if status == 409 else KubeError
    error = kind(status, reason, message or f"{what}: HTTP {status}")
    if status == 429 or status >= 500:
        unavailable = KubeUnavailable(f"{what}: HTTP {status}: {message}")
        unavailable.__cause__ = error
        return unavailable
    return error
