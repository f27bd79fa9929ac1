"""What is impossible in a Cluster's spec, found before anything starts. PURE."""

from collections.abc import Iterator, Sequence

from logfleet.config.broker import broker_config
from logfleet.config.keys import ConfigError
from logfleet.resources.cluster import ClusterResource, set_name
from logfleet.resources.plan import Reason, SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.observed import ObservedCluster
from logfleet_operator.clusters.pods import is_larger
from logfleet_operator.clusters.volumes import by_pool
from logfleet_operator.names import Manifest

DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


def as_one_refusal(refusals: Sequence[SpecRefusal]) -> SpecRefusal:
    """All refusals as one, with the reason of the first."""
    return SpecRefusal(refusals[0].reason, "; ".join(each.message for each in refusals))


def config_refusals(cluster: ClusterResource) -> Iterator[SpecRefusal]:
    """Check the configuration as a broker does, before it can keep a broker from starting."""
    identity = {"node.id": "0", "advertised.listeners": _advertised(cluster)}
    try:
        properties = manifests.server_properties(cluster, cluster.brokers)
        broker_config({**properties, **cluster.config, **identity})
    except ConfigError as error:
        yield SpecRefusal(Reason.INVALID, f"spec.config.{error.key}: {error}")


def _advertised(cluster: ClusterResource) -> str:
    return ",".join(f"{entry.name.upper()}://host:{entry.port}" for entry in cluster.spec.listeners)


def storage_refusals(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> Iterator[SpecRefusal]:
    """Require a class that waits for the pod for new volumes, else the volume chooses the zone."""
    name = cluster.metadata.name
    pools = {pool.name: pool for pool in cluster.spec.pools}
    wanted = {
        f"spec.pools[{given.pool}].storage.class": pools[given.pool].storage.class_
        for given in ranges
        if given.pool in pools
        and not observed.get("StatefulSet", set_name(name, given.pool, given.zone))
    }
    managed = cluster.spec.metadata.managed
    if managed is not None and not observed.get("StatefulSet", names.etcd_name(name)):
        wanted["spec.metadata.managed.storage.class"] = managed.storage.class_
    for path, class_name in wanted.items():
        found = storage_class(observed, class_name)
        if found is None:
            what = f"{class_name} does not exist" if class_name else "there is no default one"
            yield SpecRefusal(
                Reason.INVALID, f"{path}: StorageClass: {what}, write an existing one"
            )
        elif cluster.spec.zones and found.get("volumeBindingMode") != "WaitForFirstConsumer":
            yield SpecRefusal(
                Reason.INVALID,
                f"{path}: StorageClass {found['metadata']['name']} binds volumes at once, in any "
                "zone; write one with volumeBindingMode WaitForFirstConsumer",
            )


def storage_class(observed: ObservedCluster, name: str | None) -> Manifest | None:
    for found in observed.storage_classes:
        metadata = found["metadata"]
        if name is None:
            if metadata.get("annotations", {}).get(DEFAULT_CLASS_ANNOTATION) == "true":
                return found
        elif metadata["name"] == name:
            return found
    return None


def volumes_refusals(
    cluster: ClusterResource,
    observed: ObservedCluster,
    ranges: Sequence[BrokerIdRange],
    before: ClusterResource | None,
) -> Iterator[SpecRefusal]:
    """Refuse to shrink existing volumes or to change their class.

    before: the Cluster with its last accepted spec. If a person enlarged volumes beyond it, a spec
    that asks for no less than before is not refused.
    """
    pools = {pool.name: pool.storage for pool in cluster.spec.pools}
    sizes = {pool.name: pool.storage.size for pool in before.spec.pools} if before else {}
    for there in by_pool(cluster, observed, ranges):
        wanted = pools[there.name]
        is_less = is_larger(sizes.get(there.name, wanted.size), wanted.size)
        shrinks = is_less and is_larger(there.size, wanted.size)
        if shrinks or wanted.class_ not in {None, there.class_}:
            yield SpecRefusal(
                Reason.NOT_SUPPORTED,
                f"spec.pools[{there.name}].storage: its volumes have {there.size} of class "
                f"{there.class_ or '(the default one)'}: they only grow, and keep their class",
            )
