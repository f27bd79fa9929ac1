#!/usr/bin/env python3
"""Writes the files of the charts that are derived from crds/: copies of the CRDs, and a schema.

Helm reads no file outside a chart's folder, so charts/operator has copies of crds/*.yaml. The
schema of charts/cluster's values lets Helm refuse wrong values before they reach the API server.
operator/tests/unit/test_crds.py fails if one of these files is out of date.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
CRD_COPIES = ROOT / "charts/operator/files/crds"
CLUSTER_SCHEMA = ROOT / "charts/cluster/values.schema.json"

# Keywords with the same meaning in a CRD's schema and in JSON schema.
_SAME = (
    "type",
    "required",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "pattern",
    "description",
)


def spec_schema(crd: str) -> dict[str, Any]:
    """Return the JSON schema of `spec` in crds/<crd>.yaml; it refuses unknown fields."""
    document = yaml.safe_load((CRDS / f"{crd}.yaml").read_text())
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return json_schema(schema["properties"]["spec"])


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a structural OpenAPI schema.

    Only the API server applies its CEL rules and defaults.
    """
    result = {key: schema[key] for key in _SAME if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if schema.get("x-kubernetes-list-type") == "set":
        result["uniqueItems"] = True
    if "items" in schema:
        result["items"] = json_schema(schema["items"])
    if "properties" in schema:
        result["properties"] = {
            name: json_schema(field) for name, field in schema["properties"].items()
        }
        result["additionalProperties"] = False
    elif "additionalProperties" in schema:
        result["additionalProperties"] = json_schema(schema["additionalProperties"])
    return result


def monitoring_schema() -> dict[str, Any]:
    """Return the schema of the values for Prometheus and Grafana; each part can be switched off."""
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    seconds = {"type": "number", "exclusiveMinimum": 0}
    parts: dict[str, dict[str, Any]] = {
        "podMonitor": {"interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}},
        "dashboard": {},
        "alerts": {
            "groupLag": {"type": "integer", "minimum": 1},
            "loopLagSeconds": seconds,
            "requestSeconds": seconds,
        },
    }
    return {
        "type": "object",
        "description": "Resources for Prometheus and Grafana.",
        "additionalProperties": False,
        "properties": {
            name: {
                "type": "object",
                "additionalProperties": False,
                "properties": {"enabled": {"type": "boolean"}, "labels": labels, **own},
            }
            for name, own in parts.items()
        },
    }


def cluster_values_schema() -> dict[str, Any]:
    """Return the schema of charts/cluster's values.

    They are a Cluster's spec, and Topics without clusterRef.
    """
    topic = spec_schema("topics")
    del topic["properties"]["clusterRef"]
    topic["required"] = ["name"]
    topic["properties"]["name"] = {
        "type": "string",
        "description": "The resource's name, and the topic's unless topicName says otherwise.",
        "minLength": 1,
        "maxLength": 253,
        "pattern": "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
    }
    name = {
        "type": "string",
        "description": "The Cluster's name; empty means the release's name.",
        "maxLength": 32,
        "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$",
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart logfleet-cluster",
        "type": "object",
        "additionalProperties": False,
        "required": ["cluster"],
        "properties": {
            "name": name,
            "cluster": spec_schema("clusters"),
            "topics": {"type": "array", "items": topic},
            "testImage": {"type": "string"},
            "console": console_schema(),
            "monitoring": monitoring_schema(),
            "global": {"type": "object"},
        },
    }


def console_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Pages about the fleet, for a browser.",
        "additionalProperties": False,
        "properties": {
            "enabled": {"type": "boolean"},
            "arguments": {"type": "array", "items": {"type": "string", "pattern": "^--"}},
            "resources": {"type": "object"},
        },
    }


def wanted() -> dict[Path, str]:
    """Return path -> content of every file that is derived from crds/."""
    files = {CRD_COPIES / path.name: path.read_text() for path in sorted(CRDS.glob("*.yaml"))}
    files[CLUSTER_SCHEMA] = json.dumps(cluster_values_schema(), indent=2) + "\n"
    return files


def main() -> None:
    for path, content in wanted().items():
        if not path.exists() or path.read_text() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


if __name__ == "__main__":
    main()
