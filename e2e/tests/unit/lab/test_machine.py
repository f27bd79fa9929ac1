import pytest

from e2e.lab.commands import LabError
from e2e.lab.machine import GIB, memory_reserved_per_node, memory_total, obstacle


def test_memory_is_read_in_bytes():
    assert memory_total("MemTotal:       24684096 kB\nMemFree: 1 kB\n") == 24684096 * 1024


def test_meminfo_without_a_total_is_an_error():
    with pytest.raises(LabError, match="MemTotal"):
        memory_total("MemFree: 1 kB\n")


@pytest.mark.parametrize("gib", [12, 16, 24, 64, 256])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_nodes_together_never_promise_what_the_host_keeps(gib, nodes):
    total = gib * GIB
    offered = nodes * (total - memory_reserved_per_node(total, nodes))
    assert offered <= total - 3 * GIB
    assert offered > total // 2


def test_a_machine_sold_as_12_gib_is_enough():
    assert memory_reserved_per_node(int(11.6 * GIB), 3) > 0


def test_a_small_machine_is_refused_by_a_sentence_with_both_figures():
    with pytest.raises(LabError, match=r"12 GiB of memory; this one has 8\.0 GiB"):
        memory_reserved_per_node(8 * GIB, 3)


def test_a_person_without_root_is_told_so(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "needs root" in (obstacle() or "")


def test_a_machine_without_debians_packages_is_told_so(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert "Debian" in (obstacle() or "")
