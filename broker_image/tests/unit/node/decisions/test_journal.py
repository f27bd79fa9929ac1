import asyncio
import errno
import json
import threading
from pathlib import Path

import pytest
from logfleet.io.files import File, PosixFiles
from logfleet.node.decisions import journal as journal_module
from logfleet.node.decisions.journal import FILE_BYTES_MAX, FORMER_NAME, NAME, Journal
from logfleet.telemetry.decisions import Decision, Decisions, Kind, Query

from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


class Disk(PosixFiles):
    """`refuses`: every file. While `takes` is not set it hangs."""

    def __init__(self) -> None:
        self.refuses = False
        self.takes = threading.Event()
        self.takes.set()

    def open(self, path: str, *, create: bool = False) -> File:
        self.takes.wait()
        if self.refuses:
            raise OSError(errno.ENOSPC, "no room", path)
        return super().open(path, create=create)


def decisions() -> Decisions:
    return Decisions(1, lambda: 1_700_000_000_000)


async def opened(path: Path, disk: Disk | None = None) -> tuple[Decisions, Journal]:
    recorded = decisions()
    journal = Journal(recorded, disk or Disk())
    await journal.open(str(path))
    return recorded, journal


def causes(recorded: Decisions) -> list[str]:
    return [json.loads(line)["cause"] for line in recorded.select(Query())]


async def test_decisions_survive_a_restart(tmp_path: Path) -> None:
    recorded, journal = await opened(tmp_path)
    recorded.record(Decision(Kind.FENCED, "a"))
    await journal.close()
    recorded, journal = await opened(tmp_path)
    recorded.record(Decision(Kind.UNFENCED, "b"))
    await journal.close()
    recorded, journal = await opened(tmp_path)
    assert causes(recorded) == ["a", "b"]
    await journal.close()


async def test_it_is_written_while_the_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(journal_module, "PERIOD_S", 0.0)
    recorded, journal = await opened(tmp_path)
    looks: list[int] = []

    def look() -> None:
        if not looks:
            recorded.record(Decision(Kind.STALL, "seen by a look"))
        looks.append(0)

    running = asyncio.ensure_future(journal.run(look))
    await until(lambda: (tmp_path / NAME).exists() and (tmp_path / NAME).stat().st_size)
    assert json.loads((tmp_path / NAME).read_text())["cause"] == "seen by a look"
    running.cancel()
    await journal.close()


async def test_two_files_are_written_in_turns(tmp_path: Path) -> None:
    size = FILE_BYTES_MAX // 3
    for name in "abcdefg":
        recorded, journal = await opened(tmp_path)
        recorded.record(Decision(Kind.STALL, name * size))
        await journal.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [FORMER_NAME, NAME]
    assert all(each.stat().st_size <= FILE_BYTES_MAX for each in tmp_path.iterdir())
    recorded, journal = await opened(tmp_path)
    assert [cause[0] for cause in causes(recorded)] == ["c", "d", "e", "f", "g"][
        -len(causes(recorded)) :
    ]
    assert len(causes(recorded)) >= 3
    await journal.close()


async def test_a_line_that_a_crash_has_cut_costs_itself_only(tmp_path: Path) -> None:
    recorded, journal = await opened(tmp_path)
    recorded.record(Decision(Kind.STALL, "a"))
    recorded.record(Decision(Kind.STALL, "cut"))
    await journal.close()
    file = tmp_path / NAME
    file.write_bytes(file.read_bytes()[:-5])
    recorded, journal = await opened(tmp_path)
    recorded.record(Decision(Kind.STALL, "b"))
    await journal.close()
    recorded, journal = await opened(tmp_path)
    assert causes(recorded) == ["a", "b"]
    await journal.close()


async def test_what_a_full_disk_refuses_is_counted_and_later_ones_are_written(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "PERIOD_S", 0.0)
    disk = Disk()
    recorded, journal = await opened(tmp_path, disk)
    disk.refuses = True
    recorded.record(Decision(Kind.STALL, "a"))
    recorded.record(Decision(Kind.STALL, "b"))
    running = asyncio.ensure_future(journal.run(lambda: None))
    await until(lambda: journal.dropped == 2)
    assert causes(recorded) == ["a", "b"]
    disk.refuses = False
    recorded.record(Decision(Kind.STALL, "c"))
    await until(lambda: (tmp_path / NAME).exists() and (tmp_path / NAME).stat().st_size)
    running.cancel()
    await journal.close()
    assert journal.dropped == 2


async def test_a_disk_that_hangs_holds_up_neither_the_broker_nor_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "STOP_S_MAX", 0.01)
    disk = Disk()
    recorded, journal = await opened(tmp_path, disk)
    disk.takes.clear()
    recorded.record(Decision(Kind.STALL, "a"))
    await journal.close()
    assert causes(recorded) == ["a"]
    disk.takes.set()
    journal._thread.join()


async def test_files_that_cannot_be_read_are_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    recorded, journal = await opened(tmp_path)
    assert causes(recorded) == []
    await journal.close()
