"""Where everything of the lab is: zones, addresses, folders. Pure; the file system is not touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOST_IP = "10.240.0.1"
API_SERVER = f"https://{HOST_IP}:6443"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_IP = "10.96.0.10"
POD_CIDR = "10.244.0.0/16"
PAUSE_IMAGE = "lab.local/pause:3.10"
ZONES_MAX = 100
# Facts about the running lab that must survive neither a reboot nor a second lab: lock, pids,
# saved sysctls. The lab's names in the kernel are the machine's, so this is not below the cache.
STATE = Path("/run/logfleet-lab")


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone: one node. `index` counts from 0 and decides the addresses."""

    name: str
    index: int

    @property
    def node(self) -> str:
        return f"node-{self.name}"

    @property
    def netns(self) -> str:
        return f"klab-{self.name}"

    @property
    def switch_port(self) -> str:
        """Name of the node's end at the switch."""
        return f"zone-{self.name}"

    @property
    def node_ip(self) -> str:
        return f"10.240.0.{11 + self.index}"

    @property
    def pod_cidr(self) -> str:
        return f"10.244.{1 + self.index}.0/24"


@dataclass(frozen=True, slots=True)
class Settings:
    """The lab's folders and zones.

    root: everything cached. run: one lab's state (etcd, nodes' disks, certificates, logs), removed by purge.
    """

    root: Path
    zones: tuple[Zone, ...]
    state: Path = STATE

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def made_folders(self) -> Path:
        """List of what had to be made outside of `root`."""
        return self.run / "made-folders"

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    @property
    def logs(self) -> Path:
        return self.run / "log"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def tools(self) -> Path:
        """One folder per module and version."""
        return self.root / "tools"

    @property
    def bin(self) -> Path:
        """Links to the newest build of each tool."""
        return self.root / "bin"

    @property
    def docker(self) -> Path:
        return self.root / "docker"

    @property
    def disks(self) -> Path:
        """One folder per node."""
        return self.run / "nodes"

    def node_folder(self, zone: Zone) -> Path:
        return self.disks / zone.name

    def kubeconfig(self, user: str) -> Path:
        return self.run / f"{user}.kubeconfig"

    def zone(self, name: str) -> Zone:
        """Raises KeyError for a zone that this lab does not have."""
        for zone in self.zones:
            if zone.name == name:
                return zone
        raise KeyError(name)


def settings_from(environment: Mapping[str, str], home: Path) -> Settings:
    """LAB_ROOT moves the cache, LAB_ZONES (default "a b c") names the zones."""
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    root = Path(environment.get("LAB_ROOT") or cache / "logfleet" / "lab")
    names = environment.get("LAB_ZONES", "a b c").split()
    assert len(set(names)) == len(names) <= ZONES_MAX, names
    return Settings(
        root=root.absolute(), zones=tuple(Zone(name, index) for index, name in enumerate(names))
    )
