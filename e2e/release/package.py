"""`make package`: everything that a release consists of, in dist/.

Wheels and source archives of the three packages, the charts, the images where a Docker daemon answers, a bill of
materials for each package, and SHA256SUMS. Nothing is published. The same commit gives the same files (images apart):
times in archives are the commit's, or SOURCE_DATE_EPOCH.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from logfleet import __version__

from e2e.harness.images import ROOT, image_name
from e2e.lab.settings import settings_from
from e2e.release.sbom import bill_of

DIST: Final = ROOT / "dist"
PACKAGES: Final = {
    "logfleet": "broker_image",
    "logfleet-operator": "operator",
    "logfleet-spark": "spark-on-k8s",
}
CHARTS: Final = ("operator", "cluster", "spark-job")
IMAGES: Final = ("broker", "operator", "spark")
Report = Callable[[str], None]


def commit_time() -> int:
    """Seconds since 1970 that archives get: SOURCE_DATE_EPOCH, else the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _output("git", "log", "-1", "--format=%ct"))


def build_packages(out: Path, epoch: int, members: Iterable[str] = PACKAGES.values()) -> None:
    """The wheel and the source archive of each member."""
    for member in members:
        command = (
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-d",
            str(out),
            "-t",
            "sdist",
            "-t",
            "wheel",
        )
        _output(*command, cwd=ROOT / member, environment={"SOURCE_DATE_EPOCH": str(epoch)})


def build_charts(out: Path, epoch: int, helm: str) -> None:
    for chart in CHARTS:
        printed = _output(helm, "package", str(ROOT / "charts" / chart), "--destination", str(out))
        packed = Path(printed.rpartition(": ")[2].strip())
        packed.write_bytes(with_times(packed.read_bytes(), epoch))


def with_times(archive: bytes, epoch: int) -> bytes:
    """A .tgz with this time and no owner on every file: helm writes the current time."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member))
    return gzip.compress(plain.getvalue(), mtime=epoch)


def write_bills(out: Path, epoch: int) -> None:
    created = datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z")
    for package, member in PACKAGES.items():
        lock = (ROOT / member / "requirements.lock").read_text()
        text = bill_of(package, __version__, lock, created)
        (out / f"{package}-{__version__}.cdx.json").write_text(text)


def build_images(out: Path, epoch: int) -> None:
    """Archives for `docker load`. Raises CalledProcessError."""
    for target in IMAGES:
        tag = image_name(target)
        labels = {
            "title": f"logfleet-{target}",
            "version": __version__,
            "licenses": "Apache-2.0",
            "revision": _output("git", "rev-parse", "HEAD").strip(),
            "created": datetime.fromtimestamp(epoch, UTC).isoformat(),
        }
        words = [f"--label=org.opencontainers.image.{name}={text}" for name, text in labels.items()]
        _output("docker", "build", "--target", target, "-t", tag, *words, str(ROOT))
        archive = out / f"logfleet-{target}-image-{__version__}.tar"
        _output("docker", "save", "-o", str(archive), tag)
        _output("zstd", "--quiet", "--rm", "-10", "-T0", str(archive))


def write_sums(out: Path) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
        if path.name != "SHA256SUMS"
    ]
    (out / "SHA256SUMS").write_text("".join(lines))


def why_no_images() -> str:
    """Why images cannot be built here; empty if they can."""
    for program in ("docker", "zstd"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    answered = subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=30)
    return "" if answered.returncode == 0 else "no Docker daemon answers"


def find_helm() -> str | None:
    """The path of helm: on PATH, else the one that `make tools` built."""
    built = settings_from(os.environ, Path.home()).bin / "helm"
    return shutil.which("helm") or (str(built) if built.exists() else None)


def package(out: Path, report: Report) -> None:
    """Make everything anew in `out`, which is emptied first."""
    epoch = commit_time()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build_packages(out, epoch)
    helm = find_helm()
    if helm is None:
        report("Left out: the charts, as helm is not installed (`make tools` builds one)")
    else:
        build_charts(out, epoch, helm)
    reason = why_no_images()
    if reason:
        report(f"Left out: the images, as {reason}")
    else:
        build_images(out, epoch)
    write_bills(out, epoch)
    write_sums(out)
    for path in sorted(out.iterdir()):
        report(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")


def _output(*command: str, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


if __name__ == "__main__":
    package(DIST, print)
