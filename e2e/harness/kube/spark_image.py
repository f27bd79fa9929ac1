"""The files in the Spark image and the settings of its pods, from the Dockerfile and submit/."""

import re
from pathlib import Path
from typing import Any

import yaml

from e2e.harness.images import ROOT

SPARK = ROOT / "spark-on-k8s"
POD = SPARK / "submit" / "pod.yaml"
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
RBAC: dict[str, dict[str, Any]] = {
    d["kind"]: d for d in yaml.safe_load_all((SPARK / "submit" / "rbac.yaml").read_text())
}
CHART = yaml.safe_load((ROOT / "charts" / "operator" / "Chart.yaml").read_text())
IMAGE = f"logfleet/spark:{CHART['appVersion']}"
VOLUME_LABEL = "logfleet.dev/volume"


def copied(target: str) -> dict[str, str]:
    """Return path in the image -> path in the tree, for each file or folder that is copied."""
    text = re.findall(
        rf"^FROM base AS {target}\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    found = {}
    for source, place in re.findall(r"^COPY (?!--from)(\S+) (\S+)$", text[0], re.MULTILINE):
        found[place + Path(source).name if place.endswith("/") else place] = source
    return found


def in_the_image(path: str) -> bool:
    return any(
        Path(path).is_relative_to(place)
        and (ROOT / source / Path(path).relative_to(place)).exists()
        for place, source in copied("spark").items()
    )


def image_group() -> int:
    """Return the group of the user that the Spark image runs as."""
    stage = DOCKERFILE.partition("AS spark\n")[2].partition("FROM")[0]
    (group,) = re.findall(r"^USER \d+:(\d+)$", stage, re.MULTILINE)
    return int(group)


def same_node(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the one required term of a pod's affinity: the pods beside which it must run."""
    term: dict[str, Any]
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term.pop("topologyKey") == "kubernetes.io/hostname"
    return term
