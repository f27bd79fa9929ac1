"""A disk that a test stalls: writes or syncs below one path wait until the test lets them go on."""

import threading

from logfleet.io.files import File, PosixFile, PosixFiles, Writable

PATIENCE_S = 30


class GatedFile(PosixFile):
    files: "GatedFiles"

    def pwrite(self, data: Writable, position: int) -> None:
        self.files.pass_gate(self.files.writes, self.path)
        super().pwrite(data, position)

    def fsync(self) -> None:
        self.files.pass_gate(self.files.syncs, self.path)
        super().fsync()


class GatedFiles(PosixFiles):
    """writes, syncs: gates; while one is closed, what it is for waits in every file below `path`.

    waiting: paths at a gate, in order. error: what a sync that has waited ends with, None for none.
    """

    path = "nothing is below this"

    def __init__(self) -> None:
        self.writes, self.syncs = threading.Event(), threading.Event()
        self.writes.set()
        self.syncs.set()
        self.waiting: list[str] = []
        self.error: OSError | None = None

    def open(self, path: str, *, create: bool = False) -> File:
        file = GatedFile(path, create=create)
        file.files = self
        return file

    def pass_gate(self, gate: threading.Event, path: str) -> None:
        if path.startswith(self.path) and not gate.is_set():
            self.waiting.append(path)
            assert gate.wait(PATIENCE_S), "nobody opened the gate"
            if gate is self.syncs and self.error is not None:
                raise self.error
