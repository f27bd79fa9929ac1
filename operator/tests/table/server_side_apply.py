"""Server-side apply as the API server merges, simplified: what one manager no longer says goes.

Lists of Kubernetes's `x-kubernetes-list-type: map` are merged entry by entry, all others (atomic)
are replaced whole.
"""

from typing import Any

Manifest = dict[str, Any]
Identity = tuple[Any, ...]

_CONTAINER = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
}
_POD = "spec.template.spec"
# Where: x-kubernetes-list-map-keys, as in Kubernetes's OpenAPI (1.36, kinds that the operator
# applies).
LIST_MAP_KEYS: dict[str, tuple[str, ...]] = {
    "metadata.ownerReferences": ("uid",),
    "spec.ports": ("port", "protocol"),
    f"{_POD}.imagePullSecrets": ("name",),
    f"{_POD}.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    f"{_POD}.volumes": ("name",),
    **{f"{_POD}.{kind}": ("name",) for kind in ("containers", "initContainers")},
    **{
        f"{_POD}.{kind}.{name}": keys
        for kind in ("containers", "initContainers")
        for name, keys in _CONTAINER.items()
    },
}
# Keys that may be left out: the default in the OpenAPI.
DEFAULTS = {"protocol": "TCP"}


def merge(live: Manifest, before: Manifest, wanted: Manifest, path: str = "") -> None:
    """Change `live` as an apply of `wanted` does after the manager's last apply of `before`."""
    for name in before:
        if name not in wanted:
            live.pop(name, None)
    for name, value in wanted.items():
        where = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and isinstance(live.get(name), dict):
            merge(live[name], before.get(name) or {}, value, where)
        elif where in LIST_MAP_KEYS:
            live[name] = _merged(live.get(name) or [], before.get(name) or [], value, where)
        elif name != "resourceVersion":
            live[name] = value


def _merged(
    live: list[Manifest], before: list[Manifest], wanted: list[Manifest], path: str
) -> list[Manifest]:
    entries = _by_identity(live, path)
    old, new = _by_identity(before, path), _by_identity(wanted, path)
    for identity in old.keys() - new.keys():
        entries.pop(identity, None)
    for identity, entry in new.items():
        merge(entries.setdefault(identity, {}), old.get(identity) or {}, entry, path)
    return list(entries.values())


def _by_identity(entries: list[Manifest], path: str) -> dict[Identity, Manifest]:
    keys = LIST_MAP_KEYS[path]
    return {tuple(entry.get(key, DEFAULTS.get(key)) for key in keys): entry for entry in entries}
