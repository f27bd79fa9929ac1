"""What live objects say."""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from logfleet.resources.plan import ObservedTopic
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


def running_brokers(objects: Mapping[tuple[str, str, str], Manifest]) -> frozenset[int]:
    """Ids of the brokers whose pods run."""
    found = set()
    for (kind, _, name), live in objects.items():
        if kind == "Pod" and component(live) == names.BROKER and runs(live):
            env = live["spec"]["containers"][0]["env"]
            base = next(each["value"] for each in env if each["name"] == "BROKER_BASE")
            found.add(int(base) + int(name.rpartition("-")[2]))
    return frozenset(found)


def without_accidents(
    objects: Mapping[tuple[str, str, str], Manifest], topics: Mapping[str, ObservedTopic]
) -> str:
    """All objects and topics as text, without uids, versions, revisions, ports, ids and times."""
    kept = {}
    for (kind, _, name), live in sorted(objects.items()):
        if kind == "Event":  # named by uids and times; a lost one is nothing but a lost word
            continue
        copied = copy.deepcopy(live)
        if kind == "Secret":
            copied.pop("data")
            copied["metadata"].pop("annotations")
        kept[f"{kind}/{name}"] = copied
    text = json.dumps([kept, {name: repr(topic) for name, topic in topics.items()}])
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
