"""The rig of the Kubernetes suites: one lab with the project's images, and faults of its zones."""

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.images import ROOT, TARGETS, image_builds
from e2e.harness.kube import evidence
from e2e.harness.kube.kubernetes import Kubernetes
from e2e.lab import network
from e2e.lab.commands import LabError
from e2e.lab.lab import Lab
from e2e.lab.locking import only_lab
from e2e.lab.settings import Settings

Report = Callable[[str], None]
# Folder for the evidence of a failed run, below `build/`, which is not committed.
FAILURES = ROOT / "build" / "e2e"
# Importing an image into a zone takes seconds, so images that run in one zone are imported only there.
OPERATOR_ZONE = "b"
SPARK_ZONE = "a"
TEST_ZONE = "a"
ZONE_OF_IMAGE = {"operator": OPERATOR_ZONE, "spark": SPARK_ZONE, "test": TEST_ZONE}
# Namespaces of Kubernetes and of the lab.
OWN_NAMESPACES = frozenset(
    {"default", "kube-node-lease", "kube-public", "kube-system", "local-path-storage"}
)


class Rig:
    """A running cluster of zones. Each fault has a zone, and a counterpart that undoes it."""

    def __init__(self, lab: Lab, report: Report) -> None:
        self._lab = lab
        self._report = report
        self._imports: dict[str, Future[float]] = {}
        self.kubernetes = Kubernetes(lab.kubeconfig, lab.settings.bin)

    @property
    def zones(self) -> list[str]:
        return [zone.name for zone in self._lab.settings.zones]

    def node_ip(self, zone: str) -> str:
        """Return an address of the zone's node that this process can reach, also for NodePorts."""
        return self._lab.settings.zone(zone).node_ip

    @contextmanager
    def bringing_images(self, archive: Callable[[str], Path]) -> Iterator[None]:
        """Import every image in the background, in order, once `archive` returns it."""

        def bring(target: str) -> float:
            built = archive(target)
            started = time.monotonic()
            zone = ZONE_OF_IMAGE.get(target)
            self._lab.nodes.import_archives([built], [zone] if zone else self.zones)
            return time.monotonic() - started

        with ThreadPoolExecutor(1, "image imports") as pool:
            self._imports = {target: pool.submit(bring, target) for target in TARGETS}
            try:
                yield
            finally:
                for waiting in self._imports.values():
                    waiting.cancel()

    def wait_for_images(self, *targets: str) -> None:
        """Wait until the images of these targets are in every zone that runs them."""
        for target in targets:
            with self.part(f"image {target}, waited for"):
                took_s = self._imports[target].result()
            self._report(f"image {target}, import in the background: {took_s:.1f} s")

    def say(self, line: str) -> None:
        """Report a line to the user."""
        self._report(line)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Report how long a part took."""
        started = time.monotonic()
        yield
        self._report(f"{name}: {time.monotonic() - started:.1f} s")

    def power_off(self, zone: str) -> None:
        """Cut the power of the zone's machine; its disk keeps only data that was flushed."""
        self._lab.nodes.kill(zone)

    def power_on(self, zone: str) -> None:
        self._lab.nodes.start(zone)

    def cut_off(self, zone: str) -> None:
        """Cut the network of the zone's machine, which continues to run. Undone by `join`."""
        network.set_cable(self._lab.settings.zone(zone), plugged=False)

    def join(self, zone: str) -> None:
        network.set_cable(self._lab.settings.zone(zone), plugged=True)

    def tag_image(self, image: str, another: str) -> None:
        """Give an image another name, as if it was released again.

        Both names include their registry.
        """
        self._lab.nodes.tag_image(image, another)

    def clear(self) -> None:
        """Remove the namespaces that suites created, and wait until they are gone."""
        made = [
            namespace["metadata"]["name"]
            for namespace in self.kubernetes.items("namespaces")
            if namespace["metadata"]["name"] not in OWN_NAMESPACES
        ]
        if made:
            with self.part(f"clearing {' '.join(made)}"):
                self.kubernetes.kubectl("delete", "namespace", *made)

    def keep_evidence(self) -> str:
        """Write the state of the cluster to a folder.

        Return a page of it with the folder's path.
        """
        folder = _keep_logs(self._lab.settings)
        evidence.keep(self.kubernetes, folder)
        return f"{evidence.page(self.kubernetes)}\neverything else: {folder}"


def _keep_logs(settings: Settings) -> Path:
    """Copy the logs of the lab's daemons into a folder; return its path."""
    folder = FAILURES / time.strftime("%Y%m%d-%H%M%S")
    logs = {"lab": settings.logs} | {
        zone.node: settings.node_folder(zone) / "log" for zone in settings.zones
    }
    for name, source in logs.items():
        if source.exists():
            shutil.copytree(source, folder / name, dirs_exist_ok=True)
    return folder


@contextmanager
def running_rig(
    settings: Settings,
    report: Report,
    *,
    keep: bool,
    reuse: bool = False,
    wait_s: float = 0.0,
) -> Iterator[Rig]:
    """A new lab, removed afterwards unless `keep`; a lab that an earlier run left is removed first.

    The images are built and imported while the lab starts, as starting is mostly waiting. reuse:
    take the lab that an earlier run kept, without that run's namespaces, and keep it again. wait_s:
    how long to wait while another run uses the machine's lab.

    Raises LabError if this machine cannot run a lab, or another run uses it.
    """
    lab = Lab(settings, report)
    with only_lab(settings, wait_s):
        lab.prepare()
        if not reuse:
            if lab.leftovers():
                report("clearing the lab of an earlier run")
            lab.purge()
        rig = Rig(lab, report)
        try:
            lab.make_groups()
            with image_builds(lab, TARGETS) as archive:
                with rig.part("lab"):
                    _bring_up(lab)
                if reuse:
                    rig.clear()
                with rig.bringing_images(archive):
                    yield rig
        finally:
            if keep or reuse:
                report(f"kept: export KUBECONFIG={lab.kubeconfig} PATH={settings.bin}:$PATH")
                report("`make e2e-down` removes it")
            else:
                with rig.part("removing the lab"):
                    lab.purge()


def _bring_up(lab: Lab) -> None:
    try:
        lab.up()
    except LabError as error:
        raise LabError(f"{error}; the daemons' logs: {_keep_logs(lab.settings)}") from error
