"""Makes one Cluster as written: reads, plans, acts, reads again; then writes status. SHELL."""

import asyncio
import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, assert_never

import structlog
from logfleet.resources.cluster import ClusterResource, parse_cluster
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.plan import Reason

from logfleet_operator import certificates, conditions, manifests, names
from logfleet_operator.kube import Kube, KubeError, KubeUnavailable
from logfleet_operator.names import Manifest
from logfleet_operator.observed import Observed, by_kind_and_name, controlled_by_another, pod_from
from logfleet_operator.plan import (
    Action,
    Apply,
    ClusterPlan,
    DeleteService,
    IssueCertificate,
    MakeAuthority,
    plan_cluster,
)
from logfleet_operator.rollout import DeletePod, EvictPod
from logfleet_operator.settings import Settings

OWNED_KINDS: Final = (
    "ConfigMap",
    "PodDisruptionBudget",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)
# Each round is one stage of the plan; there are fewer stages than this.
ROUNDS_MAX: Final = 20
# What is waited for without any event that would tell: a budget that allows an eviction again.
RECHECK_S: Final = 5.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ForeignObject(Exception):
    """An object of a name that the Cluster needs belongs to somebody else."""


class ClusterReconciler:
    """notices: (namespace, Cluster) -> what the topics' side wants to be said in its status."""

    def __init__(
        self, kube: Kube, settings: Settings, *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._now = now or (lambda: datetime.now(UTC))
        self.notices: dict[tuple[str, str], str] = {}

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Take the Cluster as far as it goes now.

        Returns seconds until it should be looked at again without an event; None: not needed.
        Raises KubeUnavailable, KubeError: the caller tries again later.
        """
        live = await self._kube.get("Cluster", namespace, name)
        if live is None or "deletionTimestamp" in live["metadata"]:
            return None
        now = timestamp(self._now())
        try:
            cluster = parse_cluster(live)
        except InvalidResourceError as error:
            await self._write(live, conditions.failed(live, Reason.INVALID, str(error), now))
            return None
        try:
            observed, plan = await self._advance(cluster)
        except ForeignObject as error:
            await self._write(live, conditions.failed(live, Reason.CONFLICT, str(error), now))
            return RECHECK_S
        except KubeError as error:
            sentence = f"Kubernetes refuses: {error}"
            await self._write(live, conditions.failed(live, Reason.PROGRESSING, sentence, now))
            raise
        except KubeUnavailable as error:
            sentence = f"Kubernetes cannot do it now: {error}"
            await self._write(live, conditions.postponed(live, sentence, now))
            raise
        status = conditions.cluster_status(live, cluster, observed, plan, now)
        notice = self.notices.get((namespace, name), "")
        conditions.add_notice(live, status, notice, now)
        await self._write(live, status)
        return RECHECK_S if plan.actions or not (plan.done or plan.refusal or plan.paused) else None

    async def _advance(self, cluster: ClusterResource) -> tuple[Observed, ClusterPlan]:
        """Plan and act until nothing is left to do now, or brokers were disturbed."""
        metadata = cluster.metadata
        for _ in range(ROUNDS_MAX):
            observed = await self._observe(cluster)
            due = self._due(metadata.name, observed)
            plan = plan_cluster(cluster, observed, self._settings, renew=due)
            for action in plan.actions:
                await self._perform(cluster, observed, action)
            if plan.actions:
                log.info(
                    "cluster_changed",
                    namespace=metadata.namespace,
                    cluster=metadata.name,
                    why=plan.why,
                    actions=len(plan.actions),
                )
            disturbed = any(isinstance(action, EvictPod | DeletePod) for action in plan.actions)
            if not plan.actions or disturbed:
                break
        return observed, plan

    async def _observe(self, cluster: ClusterResource) -> Observed:
        name, namespace = cluster.metadata.name, cluster.metadata.namespace
        ours = {names.CLUSTER_LABEL: name}
        kinds = (*OWNED_KINDS, "Pod", "PersistentVolumeClaim")
        lists = await asyncio.gather(
            *(self._kube.list(kind, namespace, ours) for kind in kinds),
            self._kube.list("StorageClass", ""),
        )
        found = dict(zip((*kinds, "StorageClass"), lists, strict=True))
        secret_names = [names.etcd_secret(name, role) for role in ("ca", "server", "client")]
        secrets = await asyncio.gather(
            *(self._kube.get("Secret", namespace, secret) for secret in secret_names)
        )
        return Observed(
            objects=by_kind_and_name(live for kind in OWNED_KINDS for live in found[kind]),
            secrets={
                secret: live
                for secret, live in zip(secret_names, secrets, strict=True)
                if live is not None
            },
            pods=tuple(pod_from(live) for live in found["Pod"]),
            volumes=tuple(found["PersistentVolumeClaim"]),
            storage_classes=tuple(found["StorageClass"]),
        )

    def _due(self, cluster: str, observed: Observed) -> frozenset[str]:
        """Secrets whose certificate ends soon; a lost authority is told then, not earlier."""
        ends = {
            name: datetime.fromisoformat(text)
            for name, live in observed.secrets.items()
            if (text := live["metadata"].get("annotations", {}).get(names.EXPIRY_ANNOTATION))
        }
        authority = ends.get(names.etcd_secret(cluster, "ca"), datetime.max.replace(tzinfo=UTC))
        now = self._now()
        return frozenset(
            name for name, end in ends.items() if certificates.is_renewed(end, authority, now)
        )

    async def _perform(self, cluster: ClusterResource, observed: Observed, action: Action) -> None:
        namespace = cluster.metadata.namespace
        match action:
            case Apply(manifest, new):
                if new:
                    await self._refuse_foreign(cluster, manifest)
                await self._kube.apply(manifest)
            case MakeAuthority(secret):
                subject = f"{namespace}.{cluster.metadata.name} etcd authority"
                made = certificates.make_authority(subject, self._now())
                await self._kube.apply(_secret(cluster, secret, made, made.certificate))
            case IssueCertificate(secret, authority, common_name, hosts):
                data = observed.secrets[authority]["data"]
                signer = base64.b64decode(data["tls.crt"])
                issued = certificates.issue(
                    signer, base64.b64decode(data["tls.key"]), common_name, list(hosts), self._now()
                )
                await self._kube.apply(_secret(cluster, secret, issued, signer))
            case DeletePod(name, uid):
                log.info("pod_deleted", namespace=namespace, pod=name)
                await self._kube.delete("Pod", namespace, name, uid)
            case DeleteService(name, uid):
                await self._kube.delete("Service", namespace, name, uid)
            case EvictPod(name, uid):
                allowed = await self._kube.evict_pod(namespace, name, uid)
                log.info("pod_evicted", namespace=namespace, pod=name, allowed=allowed)
            case _:
                assert_never(action)

    async def _refuse_foreign(self, cluster: ClusterResource, manifest: Manifest) -> None:
        """An object that exists without our label may be somebody's: it is not taken over."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live = await self._kube.get(kind, cluster.metadata.namespace, name)
        if live is None:
            return
        owners = live["metadata"].get("ownerReferences", ())
        ours = any(owner["uid"] == cluster.metadata.uid for owner in owners)
        if not ours or controlled_by_another(live, cluster.metadata.uid):
            raise ForeignObject(
                f"{kind} {name} exists and is not this Cluster's: remove it, or give the Cluster "
                "another name"
            )

    async def _write(self, live: Manifest, status: dict[str, Any]) -> None:
        if live.get("status", {}) != status:
            await self._kube.apply_status(status_manifest(live, status))


def _secret(
    cluster: ClusterResource, name: str, issued: certificates.Issued, authority: bytes
) -> Manifest:
    metadata = {
        "name": name,
        "labels": names.labels(cluster.metadata.name, names.ETCD),
        "annotations": {names.EXPIRY_ANNOTATION: timestamp(issued.not_after)},
    }
    pem = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority}
    return manifests.owned(
        cluster.metadata,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(text).decode() for key, text in pem.items()},
        },
    )


def status_manifest(live: Manifest, status: dict[str, Any]) -> Manifest:
    """What is applied to write a status."""
    metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": metadata,
        "status": status,
    }


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
