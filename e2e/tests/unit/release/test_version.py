import pytest
from logfleet import __version__

from e2e.release import version as module
from e2e.release.version import chart_version, differing, repeats, texts, written


def test_every_file_that_repeats_the_version_has_the_one_of_the_package():
    found = texts()
    assert {
        path: bad for path, text in found.items() if (bad := differing(path, text, __version__))
    } == {}
    repeating = [path for path, text in found.items() if repeats(path, text, __version__)]
    assert {"charts/cluster/Chart.yaml", "compose.yaml", "Dockerfile", module.SOURCE} <= set(
        repeating
    )


@pytest.mark.parametrize("member", ["broker_image", "operator", "spark-on-k8s", "e2e"])
def test_packages_read_the_version_where_it_is_written(member):
    text = texts()[f"{member}/pyproject.toml"]
    assert 'dynamic = ["version"]' in text
    assert 'logfleet/__init__.py"' in text.partition("[tool.hatch.version]")[2]


def test_a_new_version_is_written_to_charts_tags_and_the_package():
    chart = "apiVersion: v2\nversion: 0.1.0\nappVersion: 0.1.0\nkubeVersion: x\n"
    assert written("charts/a/Chart.yaml", chart, "0.2.0rc1") == (
        "apiVersion: v2\nversion: 0.2.0-rc1\nappVersion: 0.2.0rc1\nkubeVersion: x\n"
    )
    assert written(module.SOURCE, '"""Doc 0.1.0."""\n__version__ = "0.1.0"\n', "1.0.0") == (
        '"""Doc 0.1.0."""\n__version__ = "1.0.0"\n'
    )
    page = "docker build -t logfleet/$part:0.1.0 . # logfleet/broker:0.1.0, kafka 0.1.0, logfleet/broker:0.1.0-x"
    assert written("README.md", page, "0.2.0") == (
        "docker build -t logfleet/$part:0.2.0 . # logfleet/broker:0.2.0, kafka 0.1.0, logfleet/broker:0.1.0-x"
    )
    assert differing("README.md", page, "0.2.0") == [
        "logfleet/$part:0.1.0",
        "logfleet/broker:0.1.0",
    ]


@pytest.mark.parametrize(
    "path", ["CHANGELOG.md", "docs/history/0.1.md", "operator/tests/test_a.py"]
)
def test_history_and_tests_keep_their_versions(path):
    assert written(path, "logfleet/broker:0.1.0", "0.2.0") == "logfleet/broker:0.1.0"


def test_a_prerelease_of_a_chart_is_one_that_helm_accepts():
    assert chart_version("0.2.0") == "0.2.0"
    assert chart_version("0.2.0b12") == "0.2.0-b12"


@pytest.mark.parametrize("text", ["", "0.2", "v0.2.0", "0.2.0-rc1"])
def test_what_is_no_version_is_refused(text, capsys):
    assert module.main(text) == 2
    assert "is no version" in capsys.readouterr().err
