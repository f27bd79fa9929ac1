"""The schemas in crds/, their examples, and logfleet.resources say the same."""

from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from logfleet.resources import cluster, rebalance, topic
from logfleet.resources.cluster import parse_cluster
from logfleet.resources.document import GROUP, VERSION
from logfleet.resources.rebalance import parse_rebalance
from logfleet.resources.topic import parse_topic

ROOT = Path(__file__).resolve().parents[3]
CRDS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")}
EXAMPLES = sorted((ROOT / "crds/examples").glob("*.yaml"))
PARSERS = {"Cluster": parse_cluster, "Topic": parse_topic, "Rebalance": parse_rebalance}
SHORT = {"clusters": "lfc", "topics": "lft", "rebalances": "lfr"}


def load_sync() -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("charts_sync", ROOT / "charts/sync.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sync = load_sync()


def schema(crd: str) -> dict[str, Any]:
    found = CRDS[crd]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert isinstance(found, dict)
    return found


def with_defaults(value: Any, shape: dict[str, Any]) -> Any:
    """What the API server stores: defaults filled in, from the outside to the inside."""
    if isinstance(value, dict) and "properties" in shape:
        filled = dict(value)
        for name, field in shape["properties"].items():
            if name not in filled and "default" in field:
                filled[name] = field["default"]
            if name in filled:
                filled[name] = with_defaults(filled[name], field)
        return filled
    if isinstance(value, list) and "items" in shape:
        return [with_defaults(item, shape["items"]) for item in value]
    return value


FIELDS = frozenset(
    {
        *("type", "format", "description", "properties", "items", "required", "default", "enum"),
        *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"),
        *("maxProperties", "additionalProperties", "nullable", "anyOf", "oneOf", "allOf", "not"),
    }
)


def strange_fields(shape: dict[str, Any], path: str) -> list[str]:
    """Paths with keys that OpenAPI lacks; `kubectl apply` of an existing CRD refuses them."""
    found = [
        f"{path}: {field}" for field in shape if field not in FIELDS and not field.startswith("x-")
    ]
    for name, below in shape.get("properties", {}).items():
        found += strange_fields(below, f"{path}.{name}")
    for field in ("items", "additionalProperties"):
        if isinstance(shape.get(field), dict):
            found += strange_fields(shape[field], f"{path}.{field}")
    return found


@pytest.mark.parametrize("crd", sorted(CRDS))
def test_a_schema_has_only_what_openapi_knows(crd: str) -> None:
    """A comma in a description that is not quoted begins another field."""
    assert strange_fields(schema(crd), crd) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid_for_the_api_server_and_for_us(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    plural = document["kind"].lower() + "s"
    jsonschema.validate(document["spec"], sync.spec_schema(plural))
    PARSERS[document["kind"]](document)


def test_there_is_one_example_of_each_kind() -> None:
    kinds = sorted(yaml.safe_load(path.read_text())["kind"] for path in EXAMPLES)
    assert kinds == sorted(crd["spec"]["names"]["kind"] for crd in CRDS.values())


MINIMAL = {
    "clusters": {
        "pools": [{"name": "main", "replicas": 1, "storage": {"size": "1Gi"}}],
        "metadata": {"managed": {"replicas": 1}},
    },
    "topics": {"clusterRef": {"name": "fleet"}},
    "rebalances": {"clusterRef": {"name": "fleet"}},
}


@pytest.mark.parametrize("crd", sorted(CRDS))
def test_the_api_server_fills_in_the_same_defaults_as_we_do(crd: str) -> None:
    kind = CRDS[crd]["spec"]["names"]["kind"]
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": "x"}}
    written = {**head, "spec": MINIMAL[crd]}
    stored = {**head, "spec": with_defaults(MINIMAL[crd], schema(crd)["properties"]["spec"])}
    assert stored != written
    assert PARSERS[kind](stored) == PARSERS[kind](written)


def fields(shape: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(shape)}


@pytest.mark.parametrize(
    "crd, path, shape",
    [
        ("topics", (), topic.TopicSpec),
        ("topics", ("clusterRef",), topic.ClusterRef),
        ("rebalances", (), rebalance.RebalanceSpec),
        ("rebalances", ("topics",), rebalance.Excluded),
        ("clusters", (), cluster.ClusterSpec),
        ("clusters", ("pools", "items"), cluster.Pool),
        ("clusters", ("pools", "items", "storage"), cluster.Storage),
        ("clusters", ("pools", "items", "resources"), cluster.Resources),
        ("clusters", ("listeners", "items"), cluster.ListenerSpec),
        ("clusters", ("metadata",), cluster.MetadataSpec),
        ("clusters", ("metadata", "managed"), cluster.ManagedMetadata),
        ("clusters", ("metadata", "managed", "snapshots"), cluster.Snapshots),
    ],
)
def test_schema_and_struct_have_the_same_fields(
    crd: str, path: tuple[str, ...], shape: type[msgspec.Struct]
) -> None:
    node = schema(crd)["properties"]["spec"]
    for step in path:
        node = node["items"] if step == "items" else node["properties"][step]
    assert set(node["properties"]) == fields(shape)


@pytest.mark.parametrize("crd", sorted(CRDS))
def test_a_kind_follows_the_conventions_of_kubernetes(crd: str) -> None:
    spec = CRDS[crd]["spec"]
    assert CRDS[crd]["metadata"]["name"] == f"{crd}.{GROUP}"
    assert spec["group"] == GROUP
    assert spec["names"]["categories"] == ["logfleet"]
    assert spec["names"]["shortNames"] == [SHORT[crd]]
    (version,) = spec["versions"]
    assert version["name"] == VERSION
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    assert version["subresources"] == {"status": {}} | (
        {"scale": scale} if crd == "clusters" else {}
    )
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"
    conditions = schema(crd)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_reserved_names_are_the_same_in_both_places() -> None:
    text = (ROOT / "crds/clusters.yaml").read_text()
    assert str(sorted(cluster.RESERVED_POOLS)) in text
    for key in cluster.OWNED_KEYS:
        assert f"'{key}'" in text
    for prefix in cluster.OWNED_PREFIXES:
        assert f"startsWith('{prefix}')" in text
    assert f"self != '{cluster.ADMIN_PORT_NAME}'" in text
    text = (ROOT / "crds/topics.yaml").read_text()
    for name in topic.INTERNAL_TOPICS:
        assert f"'{name}'" in text


def test_charts_hold_what_follows_from_the_crds() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, content in sync.wanted().items()
        if not path.exists() or path.read_text() != content
    ]
    assert stale == [], "run charts/sync.py"
