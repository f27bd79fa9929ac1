"""The project's images: built from the Dockerfile, exported if changed, imported into the lab."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from logfleet import __version__

from e2e.lab.docker import Build, Docker
from e2e.lab.indexes import build_secrets
from e2e.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
# In the order in which the suites need them.
TARGETS = ("broker", "operator", "test", "spark")
ID_CHARS = 12


def image_name(target: str) -> str:
    return f"logfleet/{target}:{__version__}"


@contextmanager
def image_builds(lab: Lab, targets: Iterable[str]) -> Iterator[Callable[[str], Path]]:
    """Build the targets one after the other in a thread, while the caller does something else.

    Yields a function that waits for a target's archive, and raises LabError if it cannot be built.
    Targets that have not begun when the block ends are not built. The caller must hold the lab,
    whose control groups exist.
    """
    docker = Docker(lab.settings, lab.report)
    daemon = ExitStack()
    with ThreadPoolExecutor(1, "image builds") as pool:
        started = pool.submit(daemon.enter_context, docker.running())
        archives = {target: pool.submit(build_image, lab, docker, target) for target in targets}

        def finish() -> None:
            with daemon:
                if started.exception() is None:
                    docker.prune()

        # stop the daemon at once, not at the end: an idle daemon still takes processor time from the tests
        finished = pool.submit(finish)

        def archive(target: str) -> Path:
            started.result()
            return archives[target].result()

        try:
            yield archive
        finally:
            for waiting in archives.values():
                waiting.cancel()
            finished.result()


def build_image(lab: Lab, docker: Docker, target: str) -> Path:
    """Build a target and return its archive; an unchanged image is not exported again."""
    name, secrets = image_name(target), build_secrets(lab.settings.state)
    identity = docker.build(Build(name, target, ROOT, secrets))
    archive = (
        lab.settings.images / f"logfleet-{target}-{identity.removeprefix('sha256:')[:ID_CHARS]}.tar"
    )
    if not archive.exists():
        for older in lab.settings.images.glob(f"logfleet-{target}-*.tar"):
            older.unlink()
        docker.save(name, archive)
    return archive
