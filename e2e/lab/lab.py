"""The lab as a whole: up, down, purge, and what a lab has left on the machine."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.lab import control_plane, network
from e2e.lab.cgroups import CONTROL, Hierarchies
from e2e.lab.commands import LabError, run, wait_until
from e2e.lab.disks import mount_disks, unmount_disks
from e2e.lab.folders import remove_folders
from e2e.lab.images import ensure_archive, own_images
from e2e.lab.machine import obstacle
from e2e.lab.nodes import Nodes
from e2e.lab.packages import ensure_packages
from e2e.lab.pki import ensure_pki
from e2e.lab.processes import Daemons
from e2e.lab.settings import Settings
from e2e.lab.sysctls import restore_sysctls, save_sysctls
from e2e.lab.tools import ensure_tools

ADDONS = Path(__file__).parent / "addons.yaml"
NODES_WITHIN_S = 180.0
LEFTOVERS_SHOWN = 3
Report = Callable[[str], None]


class Lab:
    """One lab on this machine. The caller holds `locking.only_lab` while it starts or ends one."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self.settings = settings
        self.report = report
        self._hierarchies = Hierarchies()
        self._daemons = Daemons(settings, self._hierarchies)
        self.nodes = Nodes(settings, self._daemons, self._hierarchies)

    @property
    def kubeconfig(self) -> Path:
        return self.settings.kubeconfig("admin")

    def prepare(self) -> None:
        """Everything that can be cached is there afterwards: packages, tools, images."""
        reason = obstacle()
        if reason is not None:
            raise LabError(reason)
        installed = ensure_packages()
        if installed:
            self.report(f"installed {' '.join(installed)}")
        ensure_tools(self.settings, self.report)
        for recipe in own_images(self.settings):
            ensure_archive(self.settings, recipe)

    def make_groups(self) -> None:
        """The lab's control groups exist: from now on a docker daemon that ends leaves them alone."""
        self._hierarchies.make(CONTROL)

    def up(self) -> None:
        """Every node is Ready, DNS and volumes work. A lab that is up already stays as it is."""
        self.prepare()
        started = time.monotonic()

        def report(what: str) -> None:
            self.report(f"{time.monotonic() - started:5.1f} s  {what}")

        save_sysctls(self.settings)
        ensure_pki(self.settings)
        network.net_up(self.settings)
        self.make_groups()
        if not mount_disks(self.settings):
            report("no loop device on this machine: the nodes' disks are folders, which is slower")
        for zone in self.settings.zones:
            self.nodes.start(zone.name)
        archives = [ensure_archive(self.settings, recipe) for recipe in own_images(self.settings)]
        with ThreadPoolExecutor(1) as pool:  # the import overlaps with the control plane's start
            imports = pool.submit(self.nodes.import_archives, archives)
            control_plane.start_control_plane(self.settings, self._daemons)
            report("control plane ready")
            imports.result()
            # not earlier: the kubelet waits long before it looks for a missing image again
            self.kubectl("apply", "-f", str(ADDONS))
        wait_until("the nodes to be Ready", self._are_nodes_ready, NODES_WITHIN_S)
        report(f"{len(self.settings.zones)} nodes ready")
        self.kubectl("-n", "kube-system", "rollout", "status", "deploy/coredns", "--timeout=120s")
        report("DNS ready")

    def down(self) -> None:
        """Nothing of any lab runs or stands in the kernel; the state on disk is kept for `up`."""
        # Without ceremony: what a killed process wrote is in the page cache, so etcd loses nothing.
        self._hierarchies.kill()
        self._hierarchies.remove()
        unmount_disks(self.settings)
        network.net_down()
        restore_sysctls(self.settings)
        shutil.rmtree(self.settings.state / "pids", ignore_errors=True)

    def purge(self) -> None:
        """As `down`, and the state is gone too. Raises LabError if something is left."""
        self.down()
        remove_folders(self.settings.made_folders)
        run("rm", "-rf", self.settings.run)
        left = self.leftovers()
        if left:
            raise LabError("left over: " + "; ".join(left))

    def kubectl(self, *arguments: str) -> str:
        return control_plane.kubectl(self.settings, *arguments)

    def status(self) -> dict[str, int | None]:
        """Daemon -> pid, None if it does not run."""
        return {name: self._daemons.pid(name) for name in self._daemons.names()}

    def leftovers(self) -> list[str]:
        """What a lab, this one or an earlier one, has in the kernel and on disk: one entry per kind."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        found: dict[str, list[object]] = {
            "processes": [*sorted(self._hierarchies.processes())],
            "namespaces": [*network.namespaces()],
            "links": [*network.links()],
            "control groups": [*self._hierarchies.folders()],
            "mounts": [path for path in mounts if Path(path).is_relative_to(self.settings.run)],
            "saved kernel settings": [*self.settings.state.glob("sysctls.json")],
            "folders": [self.settings.run] if self.settings.run.exists() else [],
        }
        return [_counted(kind, things) for kind, things in found.items() if things]

    def _are_nodes_ready(self) -> bool:
        listed = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        ready = [
            node
            for node in listed
            for condition in node["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]
        return len(ready) == len(self.settings.zones)


def _counted(kind: str, things: Sequence[object]) -> str:
    shown = ", ".join(str(thing) for thing in things[:LEFTOVERS_SHOWN])
    more = ", ..." if len(things) > LEFTOVERS_SHOWN else ""
    return f"{len(things)} {kind} ({shown}{more})"
