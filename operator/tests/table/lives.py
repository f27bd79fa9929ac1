"""What live objects say."""

import re
from typing import Any

from logfleet_operator import names

Manifest = dict[str, Any]


def is_config_map_key(key: str) -> bool:
    """As Kubernetes's IsConfigMapKey (apimachinery, util/validation)."""
    legal = re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key)
    return legal is not None and key != "." and not key.startswith("..")


def component(live: Manifest) -> str:
    return str(live["metadata"].get("labels", {}).get(names.COMPONENT_LABEL, ""))


def is_ready(pod: Manifest) -> bool:
    return any(entry["status"] == "True" for entry in pod.get("status", {}).get("conditions", ()))


def runs(pod: Manifest) -> bool:
    containers = pod.get("status", {}).get("containerStatuses", ())
    return any("running" in container["state"] for container in containers)


def without_accidents(text: str) -> str:
    """The same text for two runs that differ in uids, versions, revisions, ports, topic ids and times."""
    for pattern in (
        r"uid-\d+",
        r'"resourceVersion": "\d+"',
        r"\b30\d\d\d\b",
        r"id-\d+",
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        r'"generation": \d+',
        r'"observedGeneration": \d+',
        # these digests are of templates and of what they follow from: the end of a certificate, too
        r'"logfleet.dev/(applied|asked|made)": "\w+"',
        # revisions follow from templates, which name the end of a certificate
        r'-[0-9a-f]{8}"',
    ):
        text = re.sub(pattern, "*", text)
    return text
