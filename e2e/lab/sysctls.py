"""Kernel settings that the kubelet changes for the whole machine: saved before, put back after."""

import json
from pathlib import Path

from e2e.lab.settings import Settings

PROC = Path("/proc/sys")
NAMES = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def save_sysctls(settings: Settings) -> None:
    """Remember the values, unless an earlier lab already did and has not put them back."""
    file = _file(settings)
    if not file.exists():
        settings.state.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: _read(name) for name in NAMES}))


def restore_sysctls(settings: Settings) -> None:
    file = _file(settings)
    if file.exists():
        for name, value in json.loads(file.read_text()).items():
            (PROC / name).write_text(value)
        file.unlink()


def _file(settings: Settings) -> Path:
    return settings.state / "sysctls.json"


def _read(name: str) -> str:
    return (PROC / name).read_text().strip()
