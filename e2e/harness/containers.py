"""What containers run: the command of the broker's image, and the services of compose.yaml."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from e2e.harness.images import ROOT

PROPERTIES: Final = ROOT / "broker_image" / "image" / "server.properties"
DATA: Final = "/var/lib/logfleet"
_KIND: Final = re.compile(r"^FROM \S+ AS broker\n(.*?)(?=^FROM|\Z)", re.MULTILINE | re.DOTALL)


def image_command() -> list[str]:
    """What `docker run logfleet/broker` executes below tini, which passes signals on."""
    stage = _KIND.search((ROOT / "Dockerfile").read_text())
    assert stage is not None
    words: list[str] = []
    for instruction in ("ENTRYPOINT", "CMD"):
        found = re.search(rf"^{instruction} (\[.*\])$", stage[1], re.MULTILINE)
        assert found is not None
        words += json.loads(found[1])
    return words[words.index("--") + 1 :]


@dataclass(frozen=True)
class Service:
    """A service of compose.yaml. command: empty for the image's own."""

    name: str
    image: str
    command: tuple[str, ...]
    environment: dict[str, str]
    ports: tuple[str, ...]
    volumes: tuple[str, ...]


def composed() -> dict[str, Service]:
    """The services of compose.yaml by name, in order."""
    content: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return {
        name: Service(
            name,
            text["image"],
            tuple(text.get("command", ())),
            text.get("environment", {}),
            tuple(text.get("ports", ())),
            tuple(text["volumes"]),
        )
        for name, text in content["services"].items()
    }
