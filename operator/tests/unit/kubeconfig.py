"""A kubeconfig of one cluster and one user."""

import json
from pathlib import Path


def kubeconfig(directory: Path) -> Path:
    """The file: the API server is https://example.com:6443, the token is `secret`."""
    path = directory / "config"
    named = {
        "clusters": {"cluster": {"server": "https://example.com:6443"}},
        "users": {"user": {"token": "secret"}},
        "contexts": {"context": {"cluster": "it", "user": "it"}},
    }
    lists = {kind: [{"name": "it", **entry}] for kind, entry in named.items()}
    path.write_text(json.dumps({"current-context": "it", **lists}))
    return path
