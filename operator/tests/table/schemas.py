"""The CRDs' schemas of a status: a typed patch refuses fields that they do not name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
CRDS = Path(__file__).resolve().parents[3] / "crds"


def _status_schema(plural: str) -> Manifest:
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    schema: Manifest = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["status"])


STATUS_SCHEMAS = {
    kind: _status_schema(f"{kind.lower()}s") for kind in ("Cluster", "Topic", "Rebalance")
}


def undeclared(schema: Manifest, value: Any, path: str) -> Iterator[str]:
    """Fields of a value that a structural schema does not name."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in schema.get("properties", {}):
                yield f"{path}.{name}"
            else:
                yield from undeclared(schema["properties"][name], inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from undeclared(schema["items"], inner, f"{path}[]")
