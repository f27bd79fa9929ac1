"""The project's images: built from the Dockerfile, exported when they changed, brought into the lab's nodes."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from e2e.lab.docker import Build, Docker
from e2e.lab.indexes import build_secrets
from e2e.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("broker", "operator", "test", "spark")
ID_CHARS = 12


def version() -> str:
    """The members' version, which is the charts' appVersion and the images' tag."""
    project = tomllib.loads((ROOT / "broker_image" / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def image_name(target: str) -> str:
    return f"logfleet/{target}:{version()}"


def build_images(lab: Lab, targets: Iterable[str]) -> dict[str, Path]:
    """Build the targets and give their archives; one that did not change is exported once only."""
    docker = Docker(lab.settings, lab.report)
    secrets = build_secrets(lab.settings.state)
    archives = {}
    with docker.running():
        for target in targets:
            name = image_name(target)
            identity = docker.build(Build(name, target, ROOT, secrets))
            short = identity.removeprefix("sha256:")[:ID_CHARS]
            archive = lab.settings.images / f"logfleet-{target}-{short}.tar"
            if not archive.exists():
                for older in lab.settings.images.glob(f"logfleet-{target}-*.tar"):
                    older.unlink()
                docker.save(name, archive)
            archives[target] = archive
        docker.prune()
    return archives
