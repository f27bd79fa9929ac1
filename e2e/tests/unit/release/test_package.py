import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from logfleet import __version__

from e2e.harness.images import ROOT
from e2e.release import package as module
from e2e.release.package import (
    PACKAGES,
    build_packages,
    commit_time,
    with_times,
    write_bills,
    write_sums,
)
from e2e.release.sbom import bill_of, licence_of

EPOCH = 1_790_000_000


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    build_packages(out, EPOCH)
    return out


def test_the_same_sources_give_the_same_files(built, tmp_path):
    build_packages(tmp_path, EPOCH)
    assert len(hashes(built)) == 2 * len(PACKAGES)
    assert hashes(tmp_path) == hashes(built)


def wheel_of(built: Path, package: str) -> zipfile.ZipFile:
    (path,) = built.glob(f"{package.replace('-', '_')}-{__version__}-*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_has_its_licence_page_links_and_types(built, package):
    with wheel_of(built, package) as wheel:
        names = wheel.namelist()
        (about,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = wheel.read(about).decode()
        (licence,) = [name for name in names if name.endswith("licenses/LICENSE")]
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert any(name.endswith("/py.typed") for name in names)
    head, _, page = text.partition("\n\n")
    assert page == (ROOT / PACKAGES[package] / "README.md").read_text()
    for line in (
        f"Version: {__version__}",
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.11",
    ):
        assert line in head.splitlines()
    assert head.count("Project-URL: ") == 3
    assert "Classifier: Typing :: Typed" in head


@pytest.mark.parametrize("package", PACKAGES)
def test_a_source_archive_has_no_tests_and_builds_the_same_wheel(built, package, tmp_path):
    (path,) = built.glob(f"{package.replace('-', '_')}-{__version__}.tar.gz")
    with tarfile.open(path) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert not [name for name in names if "/tests/" in name]
    (folder,) = tmp_path.iterdir()
    build = ("hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out"))
    environment = {"PATH": str(Path(sys.executable).parent), "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run(build, cwd=folder, env=environment, check=True, capture_output=True)
    with wheel_of(tmp_path / "out", package) as again, wheel_of(built, package) as first:
        assert sorted(again.namelist()) == sorted(first.namelist())


def test_no_file_of_the_package_is_missing_in_the_wheel(built):
    with wheel_of(built, "logfleet") as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("logfleet/")}
    listed = subprocess.run(
        ["git", "ls-files", "broker_image/src/logfleet"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert {name.removeprefix("broker_image/src/") for name in listed} <= packed


@pytest.mark.parametrize("member", PACKAGES.values())
def test_the_licence_of_a_member_is_the_projects(member):
    assert (ROOT / member / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_extras_are_those_that_the_page_names():
    project = tomllib.loads((ROOT / "broker_image" / "pyproject.toml").read_text())["project"]
    page = (ROOT / "broker_image" / "README.md").read_text()
    for extra in project["optional-dependencies"]:
        assert extra == "broker" or f"`logfleet[{extra}]`" in page
    client = tomllib.loads((ROOT / "broker_image" / "pyproject.toml").read_text())[
        "dependency-groups"
    ]["client"]
    assert set(client) <= set(project["dependencies"])


def archive(mtime: int, owner: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name in ("c/Chart.yaml", "c/values.yaml"):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(name), mtime, owner
            made.addfile(member, io.BytesIO(name.encode()))
    return out.getvalue()


def test_an_archive_of_helm_gets_the_time_of_the_commit_and_keeps_its_files():
    first, second = (with_times(archive(*each), EPOCH) for each in ((1, "me"), (2, "you")))
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as read:
        assert [(each.name, each.mtime, each.uname) for each in read] == [
            ("c/Chart.yaml", EPOCH, ""),
            ("c/values.yaml", EPOCH, ""),
        ]
        content = read.extractfile("c/Chart.yaml")
        assert content is not None
        assert content.read() == b"c/Chart.yaml"


def test_a_bill_has_all_that_the_lock_installs_with_hashes_and_licences(tmp_path):
    write_bills(tmp_path, EPOCH)
    bill = json.loads((tmp_path / f"logfleet-{__version__}.cdx.json").read_text())
    lock = (ROOT / "broker_image" / "requirements.lock").read_text()
    pinned = [line for line in lock.splitlines() if line[:1].isalnum()]
    found = {each["name"]: each for each in bill["components"]}
    assert len(found) == len(pinned) > 10
    assert found["crc32c"]["licenses"] == [licence_of("crc32c")]
    assert "LGPL" in json.dumps(found["crc32c"]["licenses"])
    assert all(each["externalReferences"][0]["hashes"] for each in found.values())
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/logfleet@{__version__}"


def test_a_bill_is_equal_for_equal_locks():
    lock = f"a-b==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{'0' * 64}\n"
    first, second = (bill_of("logfleet", "1.0", lock, "2026-01-01T00:00:00Z") for _ in range(2))
    assert first == second
    (component,) = json.loads(first)["components"]
    assert component["properties"] == [
        {"name": "logfleet:installed-if", "value": "sys_platform == 'win32'"}
    ]
    assert "licenses" not in component  # not installed here


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum")
def test_sums_are_those_that_sha256sum_checks(tmp_path):
    (tmp_path / "b").write_text("1")
    (tmp_path / "a").write_text("2")
    write_sums(tmp_path)
    subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True
    )
    assert [line.split()[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()] == [
        "a",
        "b",
    ]


def test_what_cannot_be_made_here_is_one_line_each(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "build_packages", lambda *_: None)
    monkeypatch.setattr(module, "find_helm", lambda: None)
    monkeypatch.setattr(module, "why_no_images", lambda: "no Docker daemon answers")
    lines: list[str] = []
    module.package(tmp_path / "dist", lines.append)
    assert lines[:2] == [
        "Left out: the charts, as helm is not installed (`make tools` builds one)",
        "Left out: the images, as no Docker daemon answers",
    ]
    assert (tmp_path / "dist" / "SHA256SUMS").exists()


def test_the_time_can_be_given(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    assert commit_time() == 7
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert commit_time() > 1_700_000_000
