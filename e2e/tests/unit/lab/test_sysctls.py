from e2e.lab import sysctls
from e2e.lab.settings import Settings


def test_the_first_saved_values_are_put_back_whoever_saved_again(tmp_path, monkeypatch):
    proc = tmp_path / "proc"
    monkeypatch.setattr(sysctls, "PROC", proc)
    for name in sysctls.NAMES:
        (proc / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / name).write_text("0\n")
    settings = Settings(root=tmp_path, zones=(), state=tmp_path / "state")
    sysctls.save_sysctls(settings)
    (proc / "kernel/panic").write_text("10\n")
    sysctls.save_sysctls(settings)
    sysctls.restore_sysctls(settings)
    assert (proc / "kernel/panic").read_text() == "0"
    (proc / "kernel/panic").write_text("5\n")
    sysctls.restore_sysctls(settings)
    assert (proc / "kernel/panic").read_text() == "5\n"
