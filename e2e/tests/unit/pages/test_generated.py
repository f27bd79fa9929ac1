"""Pages that are made from the code."""

import re
from pathlib import Path

import pytest
import yaml

from e2e.pages.differences import LISTED, difference_docs
from e2e.pages.fields import rows, table
from e2e.pages.generated import DOCS, GENERATED, resource_docs
from e2e.pages.testing_api import api_docs


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_the_committed_page_is_current(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == GENERATED[page](), "run: make pages"


def test_every_page_of_the_reference_is_made_from_the_code() -> None:
    assert set(DOCS.glob("reference/*.md")) <= set(GENERATED)


def test_fields_below_lists_and_without_description_are_in_the_table() -> None:
    schema = {
        "properties": {
            "pools": {
                "description": "Groups | of brokers.",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "size": {"default": 3}},
                },
            },
            "mode": {"enum": ["a", "b"], "default": "a"},
        }
    }
    assert list(rows(schema)) == [
        ("pools[]", "list of object", "", "Groups | of brokers."),
        ("pools[].name", "string", "", ""),
        ("pools[].size", "any", "`3`", ""),
        ("mode", "`a`, `b`", "`a`", ""),
    ]
    assert "| `pools[]` | list of object |  | Groups \\| of brokers. |" in table(schema)


def test_all_kinds_have_their_fields() -> None:
    page = resource_docs()
    for field in ("spec.pools[].replicas", "spec.topicName", "status.listeners[].bootstrap"):
        assert re.search(rf"^\| `{re.escape(field)}` \|", page, re.MULTILINE), field


def test_every_reviewed_difference_is_a_row_with_errors_by_name() -> None:
    page = difference_docs()
    listed = LISTED.read_text().count("[[difference]]")
    assert len(re.findall(r"^\| (?!response |-)", page, re.MULTILINE)) == listed
    assert "| UpdateFeatures | `error_code` | `NONE` | `INVALID_UPDATE_VERSION` |" in page
    assert "as the line before" not in page


def test_what_tests_can_do_is_listed_with_arguments_and_results() -> None:
    page = api_docs()
    for entry in ("kill() -> None", "hits -> int", "logfleet.testing.broker(*, scope: Scope"):
        assert f"```python\n{entry}" in page, entry
    assert "(self" not in page
    assert "__enter__" not in page


def test_the_resources_that_a_first_fleet_waits_for_are_those_of_the_examples() -> None:
    page = (DOCS / "start" / "kubernetes.md").read_text()
    waited = re.findall(r"kubectl wait clusters\.logfleet\.dev/(\S+)", page)
    made = [
        yaml.safe_load(example.read_text())["metadata"]["name"]
        for example in (DOCS.parent / "crds" / "examples").glob("cluster.yaml")
    ]
    assert waited == made == ["fleet"]
