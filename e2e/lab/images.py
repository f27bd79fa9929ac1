"""The images that the lab itself brings, as archives cached by the hash of what they are made from."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.archives import Image, layer_of_file, layer_of_folder, write_archive
from e2e.lab.caching import exclusively, recipe_key, scratch_beside
from e2e.lab.commands import run
from e2e.lab.settings import PAUSE_IMAGE, Settings
from e2e.lab.tools import DNS, KUBE

PAUSE_SOURCE = Path(__file__).parent / "pause.c"
BUSYBOX = Path("/bin/busybox")
# What the project's Dockerfile builds on and what its charts run, by their public names.
BASE_IMAGE = "python:3.13-slim-trixie"
ETCD_IMAGE = "quay.io/coreos/etcd:v3.6.5"
BASE_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,netbase,tzdata"
BASE_RECIPE_VERSION = "2"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one archive: `layer` writes the tar of its only layer, given it and a scratch folder."""

    image: Image
    key: str
    layer: Callable[[Path, Path], None]

    def archive(self, settings: Settings) -> Path:
        name = self.image.name.rpartition("/")[2].partition(":")[0]
        return settings.images / f"{name}-{self.key}.tar"


def ensure_archive(settings: Settings, recipe: Recipe) -> Path:
    """The archive, made if it is not there."""
    archive = recipe.archive(settings)
    with exclusively(archive):
        if not archive.exists():
            with scratch_beside(archive) as scratch:
                layer, fresh = scratch / "layer.tar", scratch / "image.tar"
                recipe.layer(layer, scratch)
                write_archive(fresh, recipe.image, layer)
                fresh.rename(archive)
    return archive


def own_images(settings: Settings, busybox: Path = BUSYBOX) -> list[Recipe]:
    """What every node needs before it can run anything, and etcd under its public name.

    busybox: the static program that becomes the volume provisioner's shell; it must exist.
    """
    return [
        Recipe(Image(PAUSE_IMAGE, entrypoint=("/pause",)), recipe_key(PAUSE_SOURCE), _pause),
        Recipe(
            Image("lab.local/busybox:1", command=("sh",)), recipe_key(busybox), _busybox(busybox)
        ),
        _of_tool(settings, "lab.local/coredns:1", DNS.key, "/coredns"),
        _of_tool(
            settings, "lab.local/local-path-provisioner:1", DNS.key, "/local-path-provisioner"
        ),
        # as upstream: a command, no entrypoint, so that manifests which work here work there
        _of_tool(settings, ETCD_IMAGE, KUBE.key, "/usr/local/bin/etcd", is_command=True),
    ]


def base_image() -> Recipe:
    """A stand-in for the official Python image where no registry can be reached.

    Debian's own Python 3.13 below the same tag, so that the Dockerfile builds unchanged.
    """
    key = recipe_key(BASE_RECIPE_VERSION, BASE_PACKAGES)
    image = Image(BASE_IMAGE, command=("python3",), environment=("LANG=C.UTF-8",))
    return Recipe(image, key, _debian_with_python)


def _of_tool(
    settings: Settings, name: str, key: str, at: str, *, is_command: bool = False
) -> Recipe:
    """One program of `bin/` at the path `at`; it is the entrypoint, or else the command."""
    program = settings.bin / Path(at).name

    def layer(out: Path, _scratch: Path) -> None:
        layer_of_file(out, program.resolve(strict=True), at)

    image = Image(name, command=(at,)) if is_command else Image(name, entrypoint=(at,))
    return Recipe(image, recipe_key(key, str(image)), layer)


def _pause(out: Path, scratch: Path) -> None:
    run("cc", "-static", "-Os", "-s", "-o", scratch / "pause", PAUSE_SOURCE)
    layer_of_file(out, scratch / "pause", "/pause")


def _busybox(program: Path) -> Callable[[Path, Path], None]:
    """The shell of the volume provisioner's short-lived pods."""

    def layer(out: Path, scratch: Path) -> None:
        root = scratch / "root"
        (root / "bin").mkdir(parents=True)
        (root / "tmp").mkdir()
        shutil.copy(program, root / "bin" / "busybox")
        for applet in run(program, "--list").split():
            if applet != "busybox":
                (root / "bin" / applet).symlink_to("busybox")
        layer_of_folder(out, root)

    return layer


def _debian_with_python(out: Path, scratch: Path) -> None:
    root = scratch / "root"
    include = f"--include={BASE_PACKAGES}"
    try:
        run("debootstrap", "--variant=minbase", include, "trixie", root)
        for name in ("python3", "python3.13", "pip3", "pip"):
            (root / "usr/local/bin" / name).symlink_to(f"/usr/bin/{name}")
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        (root / "usr/lib/python3.13/EXTERNALLY-MANAGED").unlink()
        for folder in ("doc", "man", "info", "locale"):
            shutil.rmtree(root / "usr/share" / folder, ignore_errors=True)
            (root / "usr/share" / folder).mkdir()
        layer_of_folder(out, root)
    finally:
        # debootstrap mounts /proc inside and leaves it there if it is killed or fails
        for inside in ("proc", "sys"):
            subprocess.run(["umount", root / inside], check=False, capture_output=True)
