"""Debian's packages that the lab uses: listed here, installed when root, named in one line otherwise."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.lab.commands import LabError, run

REQUIRED = (
    "busybox-static",
    "ca-certificates",
    "containerd",
    "containernetworking-plugins",
    "debootstrap",
    "docker.io",
    "e2fsprogs",
    "gcc",
    "iproute2",
    "iptables",
    "libc6-dev",
    "mount",
    "runc",
)
# From Debian 13 and Ubuntu 24.04 on, docker.io leaves these two to packages of their own.
WHERE_THEY_EXIST = ("docker-buildx", "docker-cli")
# Asked by Debian's packages whether they may start their services; 101 means no.
POLICY = Path("/usr/sbin/policy-rc.d")
FORBIDDEN = 101


def missing(wanted: tuple[str, ...], dpkg_status: str) -> list[str]:
    """The wanted packages that are not installed.

    dpkg_status: lines of `package<space>db:Status-Abbrev`, as `dpkg-query -W` prints them.
    """
    installed = set()
    for line in dpkg_status.splitlines():
        name, _, status = line.partition(" ")
        if status.startswith("ii"):
            installed.add(name.partition(":")[0])
    return [name for name in wanted if name not in installed]


def ensure_packages() -> list[str]:
    """Install what is missing and give the names. Raises LabError where that is not possible."""
    wanted = missing(REQUIRED, _status())
    if not wanted:
        return []
    if os.geteuid() != 0:
        raise LabError(f"as root, first: apt-get install -y {' '.join(wanted)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-q", env=environment)
    wanted += [name for name in missing(WHERE_THEY_EXIST, _status()) if _is_known(name)]
    with services_stay_down():
        run("apt-get", "install", "-yq", "--no-install-recommends", *wanted, env=environment)
    return wanted


@contextmanager
def services_stay_down(policy: Path = POLICY) -> Iterator[None]:
    """No package starts a service while it is installed, unless the machine has a policy of its own.

    The lab runs containerd and dockerd itself; a dockerd of the machine would add a bridge and
    firewall rules that nobody asked for. Source: deb-systemd-invoke(1p), invoke-rc.d(8).
    """
    if policy.exists():
        yield
        return
    policy.write_text(f"#!/bin/sh\nexit {FORBIDDEN}\n")
    try:
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink()


def _status() -> str:
    return run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n")


def _is_known(name: str) -> bool:
    done = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", name], check=False, capture_output=True
    )
    return done.returncode == 0 and done.stdout.strip() != b""
