from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The contexts and the cache of these tests are not those of the person who runs them."""
    for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "xdg"))
    for variable in ("LOGFLEET_BOOTSTRAP_SERVER", "LOGFLEET_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "xdg" / "logfleet"
