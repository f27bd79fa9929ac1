"""A docker daemon of the lab's own, to build the project's Dockerfile and nothing else.

It has its own socket, data folder (the cache of layers, kept), mount namespace and control group,
no bridge and no firewall rules: whatever else docker does on the machine is not touched, and
nothing is left when it ends. Builds use the host's network.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.lab.cgroups import ROOT, Hierarchies
from e2e.lab.commands import Argument, LabError, run, succeeds, wait_until
from e2e.lab.folders import ensure_folders
from e2e.lab.images import base_image, ensure_archive
from e2e.lab.processes import Daemons
from e2e.lab.settings import Settings

# The client that the distribution packages with its daemon; another on PATH may lack a builder.
CLIENT = "/usr/bin/docker"
NAME = "dockerd"
GROUP = f"{ROOT}/docker"
START_WITHIN_S = 60.0
PULL_WITHIN_S = 60.0
BUILD_CACHE_MAX = "10gb"
Report = Callable[[str], None]
# Folders in which the daemon insists on writing: it gets copies.
OWN_FOLDERS = {"docker-etc": Path("/etc/docker"), "docker-run": Path("/run/docker")}
# In a mount namespace of the daemon's own, so that every mount ends with it, however it ends.
IN_OWN_FOLDERS = """
mount --bind "$1/docker-etc" /etc/docker; mount --bind "$1/docker-run" /run/docker; shift
exec "$@"
"""
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Build:
    """One image to build: a target of a Dockerfile.

    secrets: id -> file, there for single steps of the build only. arguments: build arguments.
    """

    tag: str
    target: str
    context: Path
    secrets: Mapping[str, Path] = field(default_factory=dict)


class Docker:
    """The daemon, while `running` is open. The caller holds `locking.only_lab`: a purge ends it."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._settings = settings
        self._report = report
        self._hierarchies = Hierarchies()
        self._daemons = Daemons(settings, self._hierarchies)
        self._socket = settings.state / "docker.sock"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the daemon for a while; layers stay cached on disk."""
        self._start()
        try:
            self._ensure_base()
            yield
        finally:
            self._stop()

    def build(self, build: Build) -> str:
        """Build an image and give its id, the hash of its content."""
        secrets = [
            word
            for name, file in sorted(build.secrets.items())
            for word in ("--secret", f"id={name},src={file}")
        ]
        proxies = [f"--build-arg={name}" for name in PROXY_VARIABLES if os.environ.get(name)]
        options = ("--network=host", "--progress=plain", *secrets, *proxies)
        self._docker("build", *options, "--target", build.target, "-t", build.tag, build.context)
        return self.image_id(build.tag)

    def image_id(self, tag: str) -> str:
        return self._docker("image", "inspect", "--format", "{{.Id}}", tag).strip()

    def save(self, tag: str, archive: Path) -> None:
        """Write an image as an archive; under its name only when it is whole."""
        archive.parent.mkdir(parents=True, exist_ok=True)
        fresh = archive.with_name(f".{archive.name}.tmp")
        self._docker("save", "-o", fresh, tag)
        fresh.replace(archive)

    def prune(self) -> None:
        """Forget images that no name points to any more; layers of recent builds stay cached."""
        self._docker("image", "prune", "--force")
        self._docker("builder", "prune", "--force", "--keep-storage", BUILD_CACHE_MAX)

    def _ensure_base(self) -> None:
        """The official Python image, or where no registry answers, the lab's stand-in of that name."""
        recipe = base_image()
        if succeeds(*self._command("image", "inspect", recipe.image.name)):
            return
        try:
            self._docker("pull", "--quiet", recipe.image.name, timeout_s=PULL_WITHIN_S)
        except LabError:
            self._report(f"no registry answers: making a stand-in for {recipe.image.name}")
            self._docker("load", "-i", ensure_archive(self._settings, recipe))

    def _start(self) -> None:
        for name, original in OWN_FOLDERS.items():
            copy = self._settings.state / name
            shutil.rmtree(copy, ignore_errors=True)
            ensure_folders(self._settings.made_folders, [original])
            shutil.copytree(original, copy)
        shutil.rmtree(self._settings.state / "docker", ignore_errors=True)
        self._hierarchies.make(GROUP)
        self._settings.docker.mkdir(parents=True, exist_ok=True)
        self._daemons.start(
            NAME,
            GROUP,
            *("unshare", "--mount", "--propagation", "private"),
            *("bash", "-euc", IN_OWN_FOLDERS, "lab", self._settings.state),
            *("dockerd", "--host", f"unix://{self._socket}", "--data-root", self._settings.docker),
            *(
                "--exec-root",
                self._settings.state / "docker",
                "--pidfile",
                self._settings.state / "docker.pid",
            ),
            *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
            *("--cgroup-parent", f"/{GROUP}", "--log-level", "warn"),
        )
        wait_until("dockerd", self._answers, START_WITHIN_S)

    def _stop(self) -> None:
        self._daemons.stop(NAME)
        self._hierarchies.kill(GROUP)
        self._hierarchies.remove(GROUP)
        self._hierarchies.remove_if_unused()

    def _answers(self) -> bool:
        self._daemons.assert_running(NAME)
        return succeeds(*self._command("version"))

    def _docker(self, *arguments: Argument, timeout_s: float | None = None) -> str:
        environment = {
            **os.environ,
            "DOCKER_BUILDKIT": "1",
            "DOCKER_CONFIG": str(self._settings.state / "docker-client"),
        }
        return run(*self._command(*arguments), env=environment, timeout_s=timeout_s)

    def _command(self, *arguments: Argument) -> tuple[Argument, ...]:
        return (CLIENT, "--host", f"unix://{self._socket}", *arguments)
