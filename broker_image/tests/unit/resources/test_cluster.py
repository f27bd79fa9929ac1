from typing import Any

import pytest
from logfleet.resources.cluster import parse_cluster, set_name, zones_of
from logfleet.resources.document import InvalidResourceError

POOL = {"name": "main", "replicas": 3, "storage": {"size": "10Gi"}}


def document(name: str = "fleet", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {
            "zones": ["a", "b", "c"],
            "pools": [POOL],
            "metadata": {"managed": {"replicas": 3}},
            **spec,
        },
    }


def pool(**fields: Any) -> dict[str, Any]:
    return {"pools": [{**POOL, **fields}]}


def listeners(*entries: dict[str, Any]) -> dict[str, Any]:
    inside = {"name": "internal", "port": 9092, "type": "internal"}
    return {"listeners": [inside, *entries]}


def test_what_is_left_out_has_a_default() -> None:
    cluster = parse_cluster(document())
    assert cluster.internal_listener.port == 9092
    assert cluster.spec.metadata.managed is not None
    assert cluster.spec.metadata.managed.storage.size == "2Gi"
    assert cluster.spec.image is None
    assert not cluster.spec.paused
    assert cluster.brokers == 3


def test_a_pool_spreads_over_its_own_zones_else_the_clusters_else_none() -> None:
    spec = parse_cluster(document(**pool(zones=["b"]))).spec
    assert zones_of(spec, spec.pools[0]) == ["b"]
    spec = parse_cluster(document()).spec
    assert zones_of(spec, spec.pools[0]) == ["a", "b", "c"]
    spec = parse_cluster(document(zones=[])).spec
    assert zones_of(spec, spec.pools[0]) == [""]


def test_a_group_of_brokers_is_named_by_cluster_pool_and_zone() -> None:
    assert set_name("fleet", "main", "a") == "fleet-main-a"
    assert set_name("fleet", "main", "") == "fleet-main"


@pytest.mark.parametrize(
    "spec, complaint",
    [
        ({"zones": ["a", "A"]}, "spec.zones[1]: 'A' cannot be part of a name"),
        ({"zones": ["a", "a"]}, "spec.zones: a is there twice"),
        ({"zones": [f"z{n}" for n in range(17)]}, "spec.zones: has 17, at most 16 fit"),
        ({"pools": []}, "spec.pools: has 0, write 1 to 16 pools"),
        ({"pools": [POOL, POOL]}, "spec.pools: main is there twice"),
        (pool(name="my-pool"), "spec.pools[0].name: 'my-pool': use 1 to 16 lower case letters"),
        (pool(name="etcd"), "spec.pools[0].name: etcd is reserved"),
        (pool(replicas=0), "spec.pools[0].replicas: is 0, write 1 to 1000 brokers"),
        (pool(zones=[]), "spec.pools[0].zones: is empty"),
        (pool(zones=["d"]), "spec.pools[0].zones[0]: d is not in spec.zones (a, b, c)"),
        (pool(storage={"size": "ten"}), "spec.pools[0].storage.size: 'ten' is not a positive"),
        (pool(storage={}), "spec.pools[0].storage.size: is missing"),
        (pool(storage={"size": "1Gi", "kind": "x"}), "there are: class, size"),
        (pool(resources={"limits": {"cpu": "-1"}}), "spec.pools[0].resources.limits.cpu: '-1'"),
        (
            {"zones": ["northamerica-northeast1-a-and-some-more-of-it"]},
            "shorten one of the names",
        ),
        ({"listeners": []}, "spec.listeners: exactly one listener of type internal is needed"),
        (
            listeners({"name": "out", "port": 9092, "type": "nodeport"}),
            "spec.listeners: 9092 is there twice",
        ),
        (
            listeners({"name": "internal", "port": 9094, "type": "nodeport"}),
            "spec.listeners: internal is there twice",
        ),
        (
            listeners({"name": "out", "port": 80, "type": "nodeport"}),
            "spec.listeners[1].port: is 80",
        ),
        (
            listeners({"name": "out", "port": 9644, "type": "nodeport"}),
            "spec.listeners[1].port: is 9644",
        ),
        (
            listeners({"name": "Out", "port": 9094, "type": "nodeport"}),
            "spec.listeners[1].name: 'Out'",
        ),
        (
            listeners({"name": "admin", "port": 9094, "type": "nodeport"}),
            "spec.listeners[1].name: admin is reserved, choose another name",
        ),
        (
            listeners({"name": "out", "port": 9094, "type": "nodeport", "advertisedHost": "a b"}),
            "spec.listeners[1].advertisedHost: 'a b' is not a host name",
        ),
        (
            {
                "listeners": [
                    {"name": "in", "port": 9092, "type": "internal", "advertisedHost": "a"}
                ]
            },
            "is for listeners of type nodeport only",
        ),
        ({"metadata": {}}, "spec.metadata: write exactly one of managed and endpoints"),
        (
            {"metadata": {"managed": {"replicas": 1}, "endpoints": ["http://etcd:2379"]}},
            "spec.metadata: write exactly one of managed and endpoints",
        ),
        ({"metadata": {"managed": {"replicas": 2}}}, "is 2, write 1 (a trial) or 3"),
        ({"metadata": {"endpoints": []}}, "spec.metadata.endpoints: is empty"),
        (
            {"metadata": {"endpoints": ["http://etcd:2379"]}},
            "spec.metadata.endpoints[0]: 'http://etcd:2379': write HOST:PORT",
        ),
        ({"config": {"node.id": 3}}, "spec.config.node.id: follows from the rest of the spec"),
        ({"config": {"logfleet.etcd.endpoints": "x"}}, "follows from the rest of the spec"),
        ({"version": "v 2"}, "spec.version: 'v 2' is not a tag of an image"),
        ({"featureLevel": 0}, "spec.featureLevel: is 0, write 1 or more"),
        ({"brokers": 3}, "spec.brokers: no such field; there are: config, featureLevel, image"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_what_to_write(
    spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse_cluster(document(**spec))
    assert complaint in str(refused.value)


def test_a_name_that_cannot_name_a_service_is_refused() -> None:
    with pytest.raises(InvalidResourceError, match=r"metadata\.name: '1st' cannot name a Service"):
        parse_cluster(document("1st"))


def test_a_name_too_long_for_its_services_is_refused() -> None:
    with pytest.raises(InvalidResourceError, match=r"metadata\.name: has more than 32 characters"):
        parse_cluster(document("x" * 33))


def test_an_etcd_outside_is_named_by_its_addresses() -> None:
    cluster = parse_cluster(document(metadata={"endpoints": ["etcd.infra:2379"]}))
    assert cluster.spec.metadata.endpoints == ["etcd.infra:2379"]


def brokers_of(*pools: dict[str, Any], **spec: Any) -> int:
    listed = [{"storage": {"size": "1Gi"}, **each} for each in pools]
    return parse_cluster(document(pools=listed, **spec)).brokers


def test_the_only_pool_has_as_many_brokers_as_kubectl_scale_says() -> None:
    assert brokers_of({"name": "main"}, replicas=6) == 6
    assert brokers_of({"name": "main", "replicas": 3}, replicas=6) == 6
    with pytest.raises(InvalidResourceError, match=r"spec\.pools\[0\]\.replicas: is missing"):
        brokers_of({"name": "main"})
    two = {"name": "main", "replicas": 1}, {"name": "other", "replicas": 1}
    with pytest.raises(InvalidResourceError, match=r"spec\.replicas: there are 2 pools"):
        brokers_of(*two, replicas=6)
