import os

import pytest

from e2e.lab.commands import LabError
from e2e.lab.locking import only_lab
from e2e.lab.settings import Settings


def test_a_second_run_is_refused_and_told_who_has_the_lab(tmp_path):
    settings = Settings(root=tmp_path, zones=(), state=tmp_path / "state")
    refusal = pytest.raises(LabError, match=f"process {os.getpid()} in ")
    with only_lab(settings), refusal, only_lab(settings):
        pass
    with only_lab(settings):
        pass
