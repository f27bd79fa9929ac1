"""Scheduled snapshots of the metadata store: a CronJob, which needs no running operator. PURE."""

from datetime import datetime, timedelta
from typing import Final

from logfleet.resources.cluster import ClusterResource, Snapshots

from logfleet_operator import names
from logfleet_operator.clusters import manifests, pods
from logfleet_operator.clusters.observed import ObservedCluster
from logfleet_operator.clusters.steps import Delete
from logfleet_operator.names import Manifest

DIRECTORY: Final = "/backup"
DEADLINE_S: Final = 600
LATE: Final = timedelta(seconds=2 * DEADLINE_S)
"""A snapshot without a success for this long has failed."""


def cron_job(cluster: ClusterResource, image: str, config: str) -> Manifest | None:
    """The CronJob; None if no snapshots are wanted.

    config: the brokers' ConfigMap. The volume is a claim that a person creates, who decides where
    backups go.
    """
    managed, name = cluster.spec.metadata.managed, cluster.metadata.name
    if managed is None or managed.snapshots is None:
        return None
    wanted = managed.snapshots
    labels = names.labels(name, names.SNAPSHOTS)
    job: Manifest = {
        "backoffLimit": 2,
        "activeDeadlineSeconds": DEADLINE_S,
        "template": {"metadata": {"labels": labels}, "spec": _pod(name, wanted, image, config)},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": names.snapshots(name), "labels": labels},
        "spec": {
            "schedule": wanted.schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": DEADLINE_S,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"metadata": {"labels": labels}, "spec": job},
        },
    }


def _pod(name: str, wanted: Snapshots, image: str, config: str) -> Manifest:
    command = [
        "logfleet",
        "metadata",
        "snapshot",
        f"{manifests.CONFIG_DIRECTORY}/server.properties",
    ]
    options = ["--override=node.id=0", f"--directory={DIRECTORY}", f"--keep={wanted.keep}"]
    container: Manifest = {
        "name": "snapshot",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*command, *options],
        "securityContext": pods.CONTAINER_SECURITY,
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "1Gi"},
        },
        "volumeMounts": [
            {
                "name": pods.CONFIG_VOLUME,
                "mountPath": manifests.CONFIG_DIRECTORY,
                "readOnly": True,
            },
            {"name": "etcd", "mountPath": manifests.CREDENTIALS_DIRECTORY, "readOnly": True},
            {"name": "backup", "mountPath": DIRECTORY},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  in the container
        ],
    }
    secret = {"secretName": names.etcd_secret(name, "client"), "defaultMode": 0o440}
    return {
        "restartPolicy": "Never",
        "serviceAccountName": names.service_account(name),
        "automountServiceAccountToken": False,
        "securityContext": pods.POD_SECURITY,
        "containers": [container],
        "volumes": [
            {"name": pods.CONFIG_VOLUME, "configMap": {"name": config}},
            {"name": "etcd", "secret": secret},
            {"name": "backup", "persistentVolumeClaim": {"claimName": wanted.claim_name}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def unwanted_cron_job(cluster: ClusterResource, observed: ObservedCluster) -> list[Delete]:
    """Deletes the CronJob if no snapshots are wanted any more. The files stay."""
    managed = cluster.spec.metadata.managed
    live = observed.get("CronJob", names.snapshots(cluster.metadata.name))
    if live is None or (managed is not None and managed.snapshots is not None):
        return []
    return [Delete("CronJob", live["metadata"]["name"], live["metadata"]["uid"])]


def last_taken(cluster: ClusterResource, observed: ObservedCluster) -> str:
    """The time of the last successful snapshot, RFC 3339; "" before the first."""
    live = observed.get("CronJob", names.snapshots(cluster.metadata.name)) or {}
    return str(live.get("status", {}).get("lastSuccessfulTime", ""))


def trouble(cluster: ClusterResource, observed: ObservedCluster, now: datetime) -> str:
    """A warning if the last snapshot failed; else ""."""
    live = observed.get("CronJob", names.snapshots(cluster.metadata.name)) or {}
    status = live.get("status", {})
    scheduled, taken = status.get("lastScheduleTime"), status.get("lastSuccessfulTime", "")
    if scheduled is None or taken >= scheduled:
        return ""
    if now - datetime.fromisoformat(scheduled) < LATE:
        return ""
    return (
        f"the snapshot of the metadata store of {scheduled} failed, the last one is of "
        f"{taken or 'never'}: see the pods of CronJob {live['metadata']['name']}"
    )
