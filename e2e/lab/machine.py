"""What the machine must offer, and the share of its memory that each node hands to pods."""

import os
import platform
import shutil
from pathlib import Path

from e2e.lab.commands import LabError

GIB = 1 << 30
MEMORY_MIN = 12 * GIB
# The kernel keeps some of the memory that the machine was sold with.
KERNEL_SHARE = 0.05
# For the control plane, dockerd, the tests and the page cache.
HOST_MEMORY_MIN = 3 * GIB
HOST_MEMORY_FRACTION = 6


def memory_total(meminfo: str) -> int:
    """Bytes of memory, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise LabError("/proc/meminfo names no MemTotal")


def memory_reserved_per_node(total: int, nodes: int) -> int:
    """Bytes each node must keep back, so that all nodes together do not promise more than there is.

    Every kubelet sees the whole machine's memory. The host's share is a sixth, at least 3 GiB; the
    rest is divided evenly. Raises LabError below 12 GiB.
    """
    if total < MEMORY_MIN * (1 - KERNEL_SHARE):
        raise LabError(
            f"the local Kubernetes needs a machine with 12 GiB of memory; this one has {total / GIB:.1f} GiB"
        )
    host = max(HOST_MEMORY_MIN, total // HOST_MEMORY_FRACTION)
    return total - (total - host) // nodes


def memory_of_this_machine() -> int:
    return memory_total(Path("/proc/meminfo").read_text())


def architecture() -> str:
    """The machine's name as Go and image archives spell it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def obstacle() -> str | None:
    """Why this machine cannot run the lab, as one sentence; None if it can."""
    if platform.system() != "Linux":
        return "the local Kubernetes needs Linux"
    if os.geteuid() != 0:
        return "the local Kubernetes needs root (network namespaces, mounts, cgroups)"
    if shutil.which("dpkg-query") is None:
        return "the local Kubernetes takes its parts from Debian or Ubuntu (no dpkg here)"
    try:
        memory_reserved_per_node(memory_of_this_machine(), 1)
    except LabError as error:
        return str(error)
    return None
