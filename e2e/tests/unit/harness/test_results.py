import json
import subprocess

import pytest

from e2e.harness.results import entry_of, source_key, store


@pytest.fixture
def tree(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a")
    return tmp_path


def test_the_key_follows_contents_and_names(tree):
    keys = [source_key("src", root=tree)]
    (tree / "src" / "a.py").write_text("b")
    keys.append(source_key("src", root=tree))
    (tree / "src" / "a.py").rename(tree / "src" / "c.py")
    keys.append(source_key("src", root=tree))
    assert len(set(keys)) == 3


def test_the_key_ignores_what_git_ignores_and_what_lies_elsewhere(tree):
    before = source_key("src", root=tree)
    (tree / "src" / "a.pyc").write_text("x")
    (tree / "README.md").write_text("x")
    assert source_key("src", root=tree) == before


def test_an_entry_replaces_that_of_its_key_and_leaves_the_others(tmp_path):
    path = tmp_path / "results" / "bench.json"
    store(path, "one", {"figure": 1})
    store(path, "two", {"figure": 2})
    store(path, "one", {"figure": 3})
    assert list(json.loads(path.read_text()).items()) == [
        ("two", {"figure": 2}),
        ("one", {"figure": 3}),
    ]


def test_an_entry_is_found_again_by_its_key(tmp_path):
    path = tmp_path / "soak.json"
    assert entry_of(path, "one") == {}
    store(path, "one", {"kills": 10})
    assert entry_of(path, "one") == {"kills": 10}
    assert entry_of(path, "two") == {}
