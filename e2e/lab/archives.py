"""Image archives in the layout of `docker save`, made of one folder or one file, without a builder.

`ctr images import` and `docker load` both take them.
"""

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.commands import run
from e2e.lab.machine import architecture

PATH_IN_IMAGE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Left out of a root folder: what belongs to the machine that runs it, and what apt can fetch again.
NOT_COPIED = (
    "./dev/*",
    "./proc/*",
    "./sys/*",
    "./var/cache/apt/archives/*.deb",
    "./var/lib/apt/lists/*",
)


@dataclass(frozen=True, slots=True)
class Image:
    """Name and run-time settings of an image."""

    name: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


def image_config(image: Image, layer_sha256: str, arch: str) -> bytes:
    """The image's configuration: one layer, run as root in /."""
    return json.dumps(
        {
            "architecture": arch,
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_sha256}"]},
            "config": {
                "Env": [f"PATH={PATH_IN_IMAGE}", *image.environment],
                "Entrypoint": list(image.entrypoint) or None,
                "Cmd": list(image.command) or None,
                "WorkingDir": "/",
            },
        }
    ).encode()


def write_archive(out: Path, image: Image, layer: Path) -> None:
    """Write `out` from a layer, itself a tar file."""
    with layer.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    config = image_config(image, sha256, architecture())
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [image.name], "Layers": ["layer.tar"]}]
    with tarfile.open(out, "w") as archive:
        _add(archive, config_name, config)
        archive.add(layer, "layer.tar")
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def layer_of_folder(out: Path, folder: Path) -> None:
    """A layer whose root is the folder."""
    excluded = [f"--exclude={pattern}" for pattern in NOT_COPIED]
    run("tar", "-C", folder, "--numeric-owner", "--sort=name", *excluded, "-cf", out, ".")


def layer_of_file(out: Path, file: Path, at: str) -> None:
    """A layer of one program at the absolute path `at`; the same content gives the same digest."""
    with tarfile.open(out, "w") as layer, file.open("rb") as content:
        entry = tarfile.TarInfo(at.lstrip("/"))
        entry.size, entry.mode = file.stat().st_size, 0o755
        layer.addfile(entry, content)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
