"""The Dockerfile, its ignore file and the list of images agree with each other and with the tree."""

import re
from pathlib import Path

import pytest
from logfleet import __version__

from e2e.harness.images import ROOT, TARGETS, image_name

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
IGNORE = (ROOT / ".dockerignore").read_text().splitlines()
COPIED = [
    source
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    for source in words.split()[:-1]
]


def stage(name: str) -> str:
    """The text of one stage."""
    (text,) = re.findall(
        rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("source", COPIED)
def test_what_is_copied_is_let_through(source):
    allowed = [line[1:] for line in IGNORE if line.startswith("!")]
    assert any(Path(source).is_relative_to(entry) for entry in allowed)


def test_nothing_else_is_sent_to_the_builder():
    assert IGNORE[1] == "*"
    allowed = {line[1:] for line in IGNORE if line.startswith("!")}
    assert allowed == set(COPIED)


@pytest.mark.parametrize("target", TARGETS)
def test_images_run_as_nobody_special_and_hold_no_builder(target):
    text = stage(target)
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", text, re.MULTILINE)
    assert not re.search(r"\b(pip|venv --|gcc|make)\b", text)
    assert re.search(rf"^FROM base AS {target}$", DOCKERFILE, re.MULTILINE)


def test_a_broker_is_no_process_1_which_the_kernel_would_spare_from_its_own_timer():
    assert 'ENTRYPOINT ["/usr/bin/tini", "-g", "--", "logfleet"]' in stage("broker")
    assert re.search(r"apt-get install .*\btini\b", stage("broker"))


def test_every_install_from_an_index_checks_hashes():
    for line in DOCKERFILE.splitlines():
        if re.search(r"pip (install|wheel)", line) and " -r " in line:
            assert "--require-hashes" in line
    assert DOCKERFILE.count(" -r ") == 5


def test_the_tag_is_the_version():
    assert image_name("broker") == f"logfleet/broker:{__version__}"


@pytest.mark.parametrize("member", ["broker_image", "operator", "spark-on-k8s"])
def test_what_a_package_is_built_from_is_copied(member):
    """Its version comes from logfleet, its page and licence lie beside its pyproject.toml."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
        assert f"{member}/{name}" in COPIED
    assert COPIED.count("broker_image/src/logfleet/__init__.py") == 2


@pytest.mark.parametrize("chart", ["operator", "cluster"])
def test_charts_ask_for_the_images_that_are_built(chart):
    text = (ROOT / "charts" / chart / "Chart.yaml").read_text()
    assert re.search(rf'^appVersion: "?{re.escape(__version__)}"?$', text, re.MULTILINE)
