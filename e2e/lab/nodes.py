"""The nodes: start, power cut, freeze, images. One node is one tree of namespaces and one cgroup subtree."""

import hashlib
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.lab.cgroups import ROOT, Hierarchies
from e2e.lab.commands import Argument, LabError, run, succeeds, wait_until
from e2e.lab.folders import ensure_folders
from e2e.lab.machine import memory_of_this_machine, memory_reserved_per_node
from e2e.lab.network import cut_pods_off
from e2e.lab.node_config import containerd_major, node_files
from e2e.lab.processes import Daemons
from e2e.lab.settings import Settings, Zone

INIT = Path(__file__).parent / "node-init.sh"
CONTAINERD_WITHIN_S = 60.0
# Folder of the node's disk -> where its programs expect it. `run` last: the mounts before it need the machine's own.
MOUNTED_OVER = {
    "kubelet": Path("/var/lib/kubelet"),
    "containerd": Path("/var/lib/containerd"),
    "cni": Path("/var/lib/cni"),
    "pods": Path("/var/log/pods"),
    "containers": Path("/var/log/containers"),
    "netd": Path("/etc/cni/net.d"),
    "volumes": Path("/opt/local-path-provisioner"),
    "run": Path("/run"),
}


class Nodes:
    """The nodes of one lab. A zone is given by its name; LabError if there is none of that name."""

    def __init__(self, settings: Settings, daemons: Daemons, hierarchies: Hierarchies) -> None:
        self._settings = settings
        self._daemons = daemons
        self._hierarchies = hierarchies

    def start(self, name: str) -> None:
        """Power on; the disk is as it was left. Ready some seconds later."""
        zone = self._zone(name)
        if self._daemons.pid(zone.node) is not None:
            return
        self._write_files(zone)
        ensure_folders(self._settings.made_folders, MOUNTED_OVER.values())
        group = f"{ROOT}/{zone.name}/sys"
        self._hierarchies.make(group)
        folder = self._settings.node_folder(zone)
        namespaces = ("--mount", "--propagation", "private", "--pid", "--uts", "--ipc")
        self._daemons.start(
            zone.node,
            group,
            *("nsenter", f"--net=/run/netns/{zone.netns}"),
            *("unshare", *namespaces, "--mount-proc", "--fork", "--kill-child"),
            *("bash", INIT, zone.name, folder, self._settings.bin, zone.node_ip),
            self._settings.kubeconfig(zone.node),
        )

    def kill(self, name: str) -> None:
        """Power cut: the kernel kills everything in the node's PID namespace."""
        zone = self._zone(name)
        group = f"{ROOT}/{zone.name}"
        self._hierarchies.thaw(group)
        self._daemons.stop(zone.node, signal.SIGKILL)
        self._hierarchies.kill(group)
        # As a reboot would: the next kubelet start spends 3 s on each container group left over.
        self._hierarchies.remove(group)
        cut_pods_off(zone)

    def freeze(self, name: str, *, frozen: bool) -> None:
        """Every process of the node stops where it stands, or goes on."""
        self._hierarchies.freeze(f"{ROOT}/{self._zone(name).name}", frozen=frozen)

    def enter(self, name: str, *command: Argument) -> str:
        """Run a program on the node, in all its namespaces."""
        namespaces = ("-m", "-n", "-p", "-u", "-i")
        return run("nsenter", "-t", self._first_process(self._zone(name)), *namespaces, *command)

    def import_archives(self, archives: list[Path], zones: list[str] | None = None) -> None:
        """Bring image archives into the containerd of each zone, unless exactly these are there.

        Remembered by each archive's size and time, beside the node's disk.
        """
        with ThreadPoolExecutor() as pool:
            names = zones if zones is not None else [zone.name for zone in self._settings.zones]
            for done in [pool.submit(self._import_into, name, archives) for name in names]:
                done.result()

    def tag_image(self, image: str, another: str) -> None:
        """Give an image that is in every zone another name there."""
        for zone in self._settings.zones:
            tag = ("ctr", "-n", "k8s.io", "images", "tag", "--force", image, another)
            self.enter(zone.name, *tag)

    def _import_into(self, name: str, archives: list[Path]) -> None:
        zone = self._zone(name)
        remembered = self._settings.node_folder(zone) / "imported"
        remembered.mkdir(parents=True, exist_ok=True)
        wait_until(f"containerd of {name}", lambda: self._answers(zone), CONTAINERD_WITHIN_S)
        for archive in archives:
            state = archive.stat()
            token = f"{archive.absolute()} {state.st_size} {state.st_mtime_ns}"
            mark = remembered / hashlib.sha256(token.encode()).hexdigest()
            if not mark.exists():
                self.enter(name, "ctr", "-n", "k8s.io", "images", "import", archive.absolute())
                mark.touch()

    def _answers(self, zone: Zone) -> bool:
        self._daemons.assert_running(zone.node)
        socket = self._settings.node_folder(zone) / "run/containerd/containerd.sock"
        if not socket.exists():
            return False
        first = self._first_process(zone)
        return succeeds("nsenter", "-t", first, "-m", "-n", "-p", "ctr", "version", timeout_s=10)

    def _first_process(self, zone: Zone) -> str:
        pid = self._daemons.pid(zone.node)
        if pid is None:
            raise LabError(f"the node of zone {zone.name} is off")
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]

    def _write_files(self, zone: Zone) -> None:
        folder = self._settings.node_folder(zone)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "run", ignore_errors=True)  # does not outlive a boot
        reserved = memory_reserved_per_node(memory_of_this_machine(), len(self._settings.zones))
        major = containerd_major(run("containerd", "--version"))
        files = node_files(self._settings, zone, containerd=major, memory_reserved=reserved)
        files["mounts"] = "".join(f"{name} {path}\n" for name, path in MOUNTED_OVER.items())
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def _zone(self, name: str) -> Zone:
        try:
            return self._settings.zone(name)
        except KeyError as error:
            raise LabError(f"there is no zone {name!r}") from error
