"""The Kubernetes objects of a Cluster's brokers. PURE.

Names and namespace are those of the Cluster; `owned` adds owner, namespace and the digest by which
a change is detected. There is one StatefulSet per pool and zone: a broker's zone is part of its
identity, and its volume never leaves it. Pods are replaced only by eviction (updateStrategy
OnDelete), so that no change of a template restarts anything.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from logfleet.config.broker_updates import base_key
from logfleet.config.keys import BROKER_KEYS, UpdateMode
from logfleet.resources.cluster import (
    ADMIN_PORT,
    ADMIN_PORT_NAME,
    ClusterResource,
    ListenerSpec,
    Pool,
    set_name,
)
from logfleet.resources.document import Metadata

from logfleet_operator import names
from logfleet_operator.clusters import pods
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.names import Manifest

NodePorts = Mapping[tuple[str, int], int]
"""(listener, broker id) -> the port of the node, where one is assigned."""

CONFIG_DIRECTORY: Final = "/etc/logfleet"
PORTS_DIRECTORY: Final = "/etc/logfleet-ports"
PROPERTIES: Final = "server.properties"
CREDENTIALS_DIRECTORY: Final = "/etc/logfleet-etcd"
DATA_DIRECTORY: Final = "/var/lib/logfleet"
# For topics that set no replication factor, and for the brokers' own topics.
REPLICAS_DEFAULT_MAX: Final = 3
# Time for a controlled shutdown before the kubelet kills the broker.
GRACE_S: Final = 120
# Recovery of a large log after a crash may take long; the liveness probe starts afterwards.
STARTUP_S_MAX: Final = 3600
STARTUP_PERIOD_S: Final = 2
# A second safeguard behind the broker's own timer: a broker that does not answer for about 10 s is
# killed. /healthz answers while logs are loaded, while etcd is away, and between the steps of the
# event loop of 2 s.
LIVENESS_PERIOD_S: Final = 2
LIVENESS_TIMEOUT_S: Final = 3
LIVENESS_FAILURES: Final = 3
# Instead of the pod's grace period: a process that does not run cannot stop in order.
LIVENESS_GRACE_S: Final = 1


def owned(metadata: Metadata, manifest: Manifest) -> Manifest:
    """The manifest as applied: in the Cluster's namespace, owned by it, with its digest.

    metadata: the Cluster's.
    """
    digest = _digest(json.dumps(manifest, sort_keys=True))
    annotations = {**manifest["metadata"].get("annotations", {}), names.APPLIED_ANNOTATION: digest}
    return {
        **manifest,
        "metadata": {
            **manifest["metadata"],
            "namespace": metadata.namespace,
            "annotations": annotations,
            "ownerReferences": [names.owner(metadata.name, metadata.uid)],
        },
    }


def service_account(cluster: ClusterResource) -> Manifest:
    name = cluster.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": names.service_account(name),
            "labels": names.labels(name, names.BROKER),
        },
        "automountServiceAccountToken": False,
    }


def services(
    cluster: ClusterResource, ranges: Sequence[BrokerIdRange], node_ports: NodePorts
) -> list[Manifest]:
    """Headless and bootstrap Services, and one NodePort Service per broker and outside listener.

    All publish addresses of pods that are not ready: peers must reach a broker that recovers, and a
    client that finds no ready broker still learns the others' addresses.
    """
    name = cluster.metadata.name
    inside = _port(cluster.internal_listener)
    admin = {
        "name": ADMIN_PORT_NAME,
        "port": ADMIN_PORT,
        "protocol": "TCP",
        "targetPort": ADMIN_PORT,
    }
    everyone = names.selector(name, names.BROKER)
    result = [
        _service(
            cluster,
            names.brokers_service(name),
            {"clusterIP": "None", "selector": everyone, "ports": [inside, admin]},
        ),
        _service(cluster, names.bootstrap_service(name), {"selector": everyone, "ports": [inside]}),
    ]
    for listener in outside_listeners(cluster):
        for broker_id, pod in broker_pods(cluster, ranges):
            port = _port(listener)
            known = node_ports.get((listener.name, broker_id))
            if known is not None:
                port["nodePort"] = known
            spec = {
                "type": "NodePort",
                "externalTrafficPolicy": _traffic_policy(listener),
                "selector": {**everyone, names.POD_NAME_LABEL: pod},
                "ports": [port],
            }
            service = names.listener_service(name, listener.name, broker_id)
            result.append(_service(cluster, service, spec))
    return result


def _traffic_policy(listener: ListenerSpec) -> str:
    """Which nodes take a connection: only the broker's own (`Local`), which saves a second hop.

    With one advertised name for all brokers, any node behind that name: with `Local` all nodes but
    one would drop the connection.
    """
    return "Cluster" if listener.advertised_host else "Local"


def outside_listeners(cluster: ClusterResource) -> list[ListenerSpec]:
    return [listener for listener in cluster.spec.listeners if listener.type == "nodeport"]


def broker_pods(cluster: ClusterResource, ranges: Sequence[BrokerIdRange]) -> list[tuple[int, str]]:
    """(broker id, pod name) of every broker, by id."""
    return [
        (
            given.base + ordinal,
            f"{set_name(cluster.metadata.name, given.pool, given.zone)}-{ordinal}",
        )
        for given in ranges
        for ordinal in range(given.replicas)
    ]


def _port(listener: ListenerSpec) -> Manifest:
    return {
        "name": listener.name,
        "port": listener.port,
        "protocol": "TCP",
        "targetPort": listener.port,
    }


def _service(cluster: ClusterResource, name: str, spec: Manifest) -> Manifest:
    labels = names.labels(cluster.metadata.name, names.BROKER)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"publishNotReadyAddresses": True, **spec},
    }


def bootstrap_address(cluster: ClusterResource) -> str:
    """HOST:PORT for clients inside Kubernetes."""
    service = names.bootstrap_service(cluster.metadata.name)
    return f"{service}.{cluster.metadata.namespace}.svc:{cluster.internal_listener.port}"


def etcd_endpoints(cluster: ClusterResource) -> list[str]:
    """HOST:PORT of the metadata store's members."""
    metadata = cluster.spec.metadata
    if metadata.managed is None:
        return list(metadata.endpoints or ())
    name, namespace = names.etcd_name(cluster.metadata.name), cluster.metadata.namespace
    return [
        f"{name}-{member}.{name}.{namespace}.svc:{names.ETCD_CLIENT_PORT}"
        for member in range(metadata.managed.replicas)
    ]


def dynamic_config(cluster: ClusterResource) -> dict[str, str]:
    """The part of spec.config that is set in running brokers, fleet-wide.

    Kafka calls this the cluster-wide update mode.
    """
    return {
        key: value
        for key, value in cluster.config.items()
        if key in BROKER_KEYS and BROKER_KEYS[key].mode is UpdateMode.CLUSTER_WIDE
    }


def unknown_keys(cluster: ClusterResource) -> list[str]:
    """Keys in spec.config that brokers do not have."""
    return sorted(key for key in cluster.config if base_key(key) is None)


def static_config(cluster: ClusterResource) -> dict[str, str]:
    """The part of spec.config that brokers read only at their start: a change restarts them."""
    other = {*dynamic_config(cluster), *unknown_keys(cluster)}
    return {key: value for key, value in cluster.config.items() if key not in other}


def server_properties(cluster: ClusterResource, brokers: int) -> dict[str, str]:
    """The configuration that all brokers start with; overrides add identity and addresses.

    brokers: their number, including those that leave, so that the meaning of `acks=all` does not
    change while they wait. Keys that can be set in running brokers are left out: the metadata store
    keeps them, and a key removed there would fall back to the value here.
    """
    spec, metadata = cluster.spec, cluster.metadata
    internal = cluster.internal_listener.name.upper()
    replicas = _default_replicas(brokers)
    properties = {
        # As many replicas as possible; acknowledged records survive the loss of one.
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
        "min.insync.replicas": str(max(1, replicas - 1)),
        **static_config(cluster),
        "listeners": ",".join(f"{entry.name.upper()}://:{entry.port}" for entry in spec.listeners),
        "listener.security.protocol.map": ",".join(
            f"{entry.name.upper()}:PLAINTEXT" for entry in spec.listeners
        ),
        "inter.broker.listener.name": internal,
        "log.dirs": f"{DATA_DIRECTORY}/data",
        "logfleet.cluster.name": f"{metadata.namespace}.{metadata.name}",
        "logfleet.admin.listener": f":{ADMIN_PORT}",
        "logfleet.metadata.store": "etcd",
        "logfleet.etcd.endpoints": ",".join(etcd_endpoints(cluster)),
    }
    if spec.metadata.managed is not None:
        for key, file in (("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")):
            properties[f"logfleet.etcd.{key}.location"] = f"{CREDENTIALS_DIRECTORY}/{file}"
    return properties


def _default_replicas(brokers: int) -> int:
    return min(brokers, REPLICAS_DEFAULT_MAX)


def config(cluster: ClusterResource, brokers: int) -> Manifest:
    """The ConfigMap with server.properties. brokers: see `server_properties`.

    It has another name for each text, so that a broker's file never changes before its pod does.
    """
    properties = sorted(server_properties(cluster, brokers).items())
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in properties)
    name = names.config_revision(cluster.metadata.name, _digest(text)[:10])
    return {**_config_map(cluster, name, {PROPERTIES: text}), "immutable": True}


def ports(cluster: ClusterResource, node_ports: NodePorts, kept: Mapping[str, str]) -> Manifest:
    """The ConfigMap with a file LISTENER.ID, holding the node's port, for each outside address.

    kept: other files, which pods still read.
    """
    files = {f"{name}.{broker_id}": str(port) for (name, broker_id), port in node_ports.items()}
    data = dict(sorted({**kept, **files}.items()))
    return _config_map(cluster, names.config_map(cluster.metadata.name), data)


def _config_map(cluster: ClusterResource, name: str, data: Mapping[str, str]) -> Manifest:
    labels = names.labels(cluster.metadata.name, names.BROKER)
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**data}}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def start_script(cluster: ClusterResource) -> str:
    """The script of a broker's container: computes its id and addresses, then executes the broker.

    A shell script, because the ordinal and the node's port differ between pods of one template. The
    broker runs below tini, since the kernel spares process 1 (logfleet.io.dead_mans_timer); images
    of earlier versions have no tini.
    """
    name, namespace = cluster.metadata.name, cluster.metadata.namespace
    lines = [
        "id=$((BROKER_BASE + ${POD_NAME##*-}))",
        "if command -v tini >/dev/null; then init='tini -g --'; fi",
    ]
    addresses = []
    for listener in cluster.spec.listeners:
        if listener.type == "internal":
            host = f"$POD_NAME.{names.brokers_service(name)}.{namespace}.svc"
            addresses.append(f"{listener.name.upper()}://{host}:{listener.port}")
        else:
            # A separate assignment, so that a missing file stops the script here (sh -e).
            lines.append(f"{listener.name}_port=$(cat {PORTS_DIRECTORY}/{listener.name}.$id)")
            host = listener.advertised_host or "$HOST_IP"
            addresses.append(f"{listener.name.upper()}://{host}:${listener.name}_port")
    lines.append(
        f"exec $init logfleet broker {CONFIG_DIRECTORY}/server.properties --override node.id=$id"
        f' --override advertised.listeners="{",".join(addresses)}"'
        ' ${BROKER_RACK:+--override broker.rack="$BROKER_RACK"}'
    )
    return "\n".join(lines) + "\n"


def broker_set(
    cluster: ClusterResource,
    pool: Pool,
    given: BrokerIdRange,
    *,
    image: str,
    brokers: int,
    credentials: str = "",
) -> Manifest:
    """The StatefulSet of one pool in one zone. brokers: see `server_properties`.

    credentials: changes when the brokers' certificate for etcd is renewed. Brokers read it at their
    start, so they are restarted for it, long before the old one ends.
    """
    name = cluster.metadata.name
    match = {
        **names.selector(name, names.BROKER),
        names.POOL_LABEL: given.pool,
        names.ZONE_LABEL: given.zone,
    }
    labels = {**names.labels(name, names.BROKER), **match}
    durable = {**labels, names.BASE_LABEL: str(given.base)}
    read_at_start = [server_properties(cluster, brokers), start_script(cluster)]
    container = _broker_container(cluster, pool, given, image)
    config_name = str(config(cluster, brokers)["metadata"]["name"])
    renew = cluster.metadata.annotations.get(names.RENEW_ANNOTATION, "")
    template: Manifest = {
        "metadata": {
            "labels": labels,
            "annotations": {
                **({names.RENEW_ANNOTATION: renew} if renew else {}),
                **({names.CREDENTIALS_ANNOTATION: credentials} if credentials else {}),
                names.CONFIG_ANNOTATION: _digest(json.dumps(read_at_start, sort_keys=True)),
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(ADMIN_PORT),
            },
        },
        "spec": _broker_pod(cluster, given, container, match, config_name),
    }
    made = _digest(json.dumps(template, sort_keys=True))
    template["metadata"]["annotations"][names.MADE_ANNOTATION] = made
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": set_name(name, given.pool, given.zone),
            "labels": durable,
            "annotations": {names.ASKED_ANNOTATION: _asked(cluster, pool, credentials, brokers)},
        },
        "spec": {
            "serviceName": names.brokers_service(name),
            "replicas": given.replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": match},
            "template": template,
            "volumeClaimTemplates": [pods.claim(pool.storage, durable)],
        },
    }


def _asked(cluster: ClusterResource, pool: Pool, credentials: str, brokers: int) -> str:
    """The digest of what a person wrote, or what expires, as far as pods are made from it."""
    spec = cluster.spec
    parts = (
        # Without a version the same as before versions existed, so nothing is replaced. No image
        # begins with a colon.
        spec.image or (spec.version and f":{spec.version}"),
        pool.resources,
        static_config(cluster),
        _default_replicas(brokers),
        spec.listeners,
        spec.metadata,
        credentials,
        cluster.metadata.annotations.get(names.RENEW_ANNOTATION, ""),
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def _broker_pod(
    cluster: ClusterResource,
    given: BrokerIdRange,
    container: Manifest,
    match: Manifest,
    config: str,
) -> Manifest:
    """config: the name of the ConfigMap."""
    name = cluster.metadata.name
    managed = cluster.spec.metadata.managed is not None
    volumes: list[Manifest] = [
        {"name": pods.CONFIG_VOLUME, "configMap": {"name": config}},
        {"name": "ports", "configMap": {"name": names.config_map(name)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if managed:
        secret = {"secretName": names.etcd_secret(name, "client"), "defaultMode": 0o440}
        volumes.append({"name": "etcd", "secret": secret})
    return {
        "serviceAccountName": names.service_account(name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pods.POD_SECURITY,
        "affinity": pods.in_zones([given.zone] if given.zone else []),
        "topologySpreadConstraints": [pods.spread_over(pods.HOST_KEY, match)],
        "containers": [container],
        "volumes": volumes,
    }


def _broker_container(
    cluster: ClusterResource, pool: Pool, given: BrokerIdRange, image: str
) -> Manifest:
    mounts = [
        {"name": "data", "mountPath": DATA_DIRECTORY},
        {"name": pods.CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True},
        {"name": "ports", "mountPath": PORTS_DIRECTORY, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # a mount point, not a file of ours
    ]
    if cluster.spec.metadata.managed is not None:
        mounts.append({"name": "etcd", "mountPath": CREDENTIALS_DIRECTORY, "readOnly": True})
    listening = [
        {"name": entry.name, "containerPort": entry.port} for entry in cluster.spec.listeners
    ]
    container: Manifest = {
        "name": "broker",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-ec", start_script(cluster)],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "BROKER_BASE", "value": str(given.base)},
            {"name": "BROKER_RACK", "value": given.zone},
        ],
        "ports": [*listening, {"name": ADMIN_PORT_NAME, "containerPort": ADMIN_PORT}],
        "startupProbe": {
            **_probe("/healthz", STARTUP_PERIOD_S),
            "failureThreshold": STARTUP_S_MAX // STARTUP_PERIOD_S,
        },
        "livenessProbe": {
            **_probe("/healthz", LIVENESS_PERIOD_S),
            "timeoutSeconds": LIVENESS_TIMEOUT_S,
            "failureThreshold": LIVENESS_FAILURES,
            "terminationGracePeriodSeconds": LIVENESS_GRACE_S,
        },
        "readinessProbe": {**_probe("/readyz", 2), "failureThreshold": 2},
        "securityContext": pods.CONTAINER_SECURITY,
        "volumeMounts": mounts,
    }
    amounts = {
        kind: {name: str(amount) for name, amount in given_amounts.items()}
        for kind, given_amounts in (
            ("requests", pool.resources.requests),
            ("limits", pool.resources.limits),
        )
        if given_amounts
    }
    if amounts:
        container["resources"] = amounts
    return container


def _probe(path: str, period_s: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": ADMIN_PORT_NAME},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
    }


def brokers_budget(cluster: ClusterResource, min_available: int) -> Manifest:
    name = cluster.metadata.name
    return pods.budget(
        names.brokers_budget(name),
        names.labels(name, names.BROKER),
        names.selector(name, names.BROKER),
        min_available,
    )
