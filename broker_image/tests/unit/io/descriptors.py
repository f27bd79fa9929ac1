"""The open files of this process that one test made."""

from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """Paths in the folder that a descriptor of this process is open on, one by one.

    Not all descriptors are counted: the garbage collector may close those of other tests at any
    moment.
    """
    paths = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            path = descriptor.readlink()
        except FileNotFoundError:  # such a one, or that of this listing
            continue
        if path.is_relative_to(folder):
            paths.append(str(path))
    return sorted(paths)
