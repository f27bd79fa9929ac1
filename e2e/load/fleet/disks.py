"""The disks of the brokers of `make failover`: a small file system for each, with two log directories, which can be filled, and fail."""

import os
import subprocess
from pathlib import Path

from e2e.harness.preload import compiled

SIZE_MIB = 512
SHIM = Path(__file__).with_name("fails.c")


class Disk:
    """Of one broker. Mounting it takes root."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "disk"
        self._failing = directory / "failing"
        self._balloon = self.path / "balloon"
        self.path.mkdir(parents=True)
        size = f"size={SIZE_MIB}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.path)], check=True)
        self._library = compiled(SHIM, directory)

    @property
    def log_dirs(self) -> list[Path]:
        return [self.path / "one", self.path / "two"]

    @property
    def environment(self) -> dict[str, str]:
        """Of the process whose disk it is."""
        own = {"LD_PRELOAD": str(self._library), "LOGFLEET_FAILS": str(self._failing)}
        return {**os.environ, **own}

    def fill(self) -> None:
        """Nothing more fits."""
        with self._balloon.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                self._fill(file.fileno(), b"\0" * size)

    def _fill(self, file: int, block: bytes) -> None:
        """As often as the block fits."""
        try:
            while os.write(file, block) == len(block):
                pass
        except OSError:
            return  # full, as it should be

    def empty(self) -> None:
        """There is room again."""
        self._balloon.unlink()

    def fail(self, log_dir: Path) -> None:
        """That directory can be written no more."""
        self._failing.write_text(str(log_dir))

    def mend(self) -> None:
        self._failing.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
