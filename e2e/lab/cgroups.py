"""Control groups: one subtree `klab` holds every process of the lab, control plane included.

Whatever an earlier run left, killed or not, is found there. In each zone's part, `sys` holds the
node's own daemons and the kubelet puts the pods beside it. Version 1 (one tree per controller,
possibly a hybrid host with a `unified` one) and version 2 are both known.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.commands import wait_until

MOUNT = Path("/sys/fs/cgroup")
ROOT = "klab"
CONTROL = f"{ROOT}/control"
# What kubelet and runc set limits with; the version 2 tree must pass them down explicitly.
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
KILL_WITHIN_S = 20.0
REMOVE_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The machine's cgroup trees. mount: where they are mounted."""

    mount: Path = MOUNT

    @property
    def is_version_1(self) -> bool:
        return (self.mount / "memory").is_dir()

    @property
    def trees(self) -> list[Path]:
        """Every tree in which the lab places processes."""
        if not self.is_version_1:
            return [self.mount]
        return sorted(
            path
            for path in self.mount.iterdir()
            if path.is_dir() and not path.is_symlink() and path.name != "unified"
        )

    @property
    def all_trees(self) -> list[Path]:
        """Also the unified tree of a hybrid host: runc mirrors its paths there."""
        unified = self.mount / "unified"
        return [*self.trees, unified] if unified.is_dir() else self.trees

    def make(self, path: str) -> None:
        """Make the group `path` in every tree, ready for processes."""
        parts = path.split("/")
        for tree in self.trees:
            for depth in range(1, len(parts) + 1):
                group = tree.joinpath(*parts[:depth])
                group.mkdir(exist_ok=True)
                _inherit_cpuset(group)
                if not self.is_version_1 and depth < len(parts):
                    _pass_controllers_down(group)

    def procs_files(self, path: str) -> list[Path]:
        """Writing a pid into each of these moves the process into the group."""
        return [tree / path / "cgroup.procs" for tree in self.trees]

    def processes(self, path: str = ROOT) -> set[int]:
        """Pids in the group and all below it."""
        pids: set[int] = set()
        for tree in self.all_trees:
            for folder, _, _ in os.walk(tree / path):
                pids.update(_pids(Path(folder) / "cgroup.procs"))
        return pids

    def folders(self, path: str = ROOT) -> list[Path]:
        """The group's folders in every tree, deepest first."""
        found = [Path(folder) for tree in self.all_trees for folder, _, _ in os.walk(tree / path)]
        return sorted(found, key=lambda folder: -len(folder.parts))

    def freeze(self, path: str, *, frozen: bool) -> None:
        """Stop or resume every process of the group where it stands."""
        if self.is_version_1:
            state = self.mount / "freezer" / path / "freezer.state"
            state.write_text("FROZEN" if frozen else "THAWED")
        else:
            (self.mount / path / "cgroup.freeze").write_text("1" if frozen else "0")

    def thaw(self, path: str) -> None:
        """Resume the group and those directly below it: version 1 kills no frozen process."""
        tree = self.mount / "freezer" if self.is_version_1 else self.mount
        for state in ("freezer.state", "cgroup.freeze"):
            for file in (tree / path / state, *(tree / path).glob(f"*/{state}")):
                if file.exists():
                    self.freeze(str(file.parent.relative_to(tree)), frozen=False)

    def kill(self, path: str = ROOT) -> None:
        """No process of the group is left. Raises LabError if one survives SIGKILL for 20 s."""

        def is_empty() -> bool:
            for pid in self.processes(path):
                _kill(pid)
            return not self.processes(path)

        self.thaw(path)
        wait_until(f"the processes of {path} to end", is_empty, KILL_WITHIN_S)

    def remove(self, path: str = ROOT) -> None:
        """Remove the group from every tree; it holds no process any more."""
        wait_until(
            f"the control groups of {path} to go", lambda: self._try_remove(path), REMOVE_WITHIN_S
        )

    def remove_if_unused(self) -> None:
        """Remove the lab's root group if nothing is below it."""
        if all(folder.name == ROOT for folder in self.folders()):
            self.remove()

    def _try_remove(self, path: str) -> bool:
        # The kernel lets go of a group a little after its last process has ended.
        for folder in self.folders(path):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                time.sleep(0.05)
        return not self.folders(path)


def _inherit_cpuset(group: Path) -> None:
    """Version 1: a new cpuset is empty and takes no process until it names processors and memory."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if file.exists() and (group.parent / name).exists() and not file.read_text().strip():
            file.write_text((group.parent / name).read_text())


def _pass_controllers_down(group: Path) -> None:
    """Version 2: children get a controller only if their parent passes it on."""
    offered = (group / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{name}" for name in CONTROLLERS if name in offered)
    (group / "cgroup.subtree_control").write_text(wanted)


def _pids(file: Path) -> set[int]:
    try:
        return {int(line) for line in file.read_text().split() if line != "0"}
    except OSError:  # the group went while it was read
        return set()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
