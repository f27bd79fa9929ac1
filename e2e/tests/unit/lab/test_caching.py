from pathlib import Path

import pytest

from e2e.lab.caching import exclusively, recipe_key, scratch_beside


def test_the_key_follows_content_and_order_and_nothing_else(tmp_path):
    (tmp_path / "go.mod").write_text("one")
    before = recipe_key(tmp_path, "flags")
    (tmp_path / "go.mod").touch()
    assert recipe_key(tmp_path, "flags") == before
    assert recipe_key("flags", tmp_path) != before
    (tmp_path / "go.mod").write_text("two")
    assert recipe_key(tmp_path, "flags") != before


def test_parts_do_not_run_into_each_other():
    assert recipe_key("ab", "c") != recipe_key("a", "bc")


def test_scratch_goes_also_after_an_error_and_what_a_kill_left_goes_first(tmp_path):
    target = tmp_path / "image.tar"
    (tmp_path / ".image.tar.tmp").mkdir()
    (tmp_path / ".image.tar.tmp" / "half").touch()
    seen: list[Path] = []

    def fail(scratch: Path) -> None:
        seen.extend(scratch.iterdir())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), scratch_beside(target) as scratch:
        fail(scratch)
    assert seen == []
    assert list(tmp_path.iterdir()) == []


def test_a_lock_can_be_taken_again_after_its_holder(tmp_path):
    for _ in range(2):
        with exclusively(tmp_path / "new" / "thing"):
            pass
