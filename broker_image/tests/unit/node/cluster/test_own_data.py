"""The table of docs/how-to/log-directories.md, with the outcome of each case.

(identity, logs, metadata store) x (one directory, two, a fleet's).
"""

import contextlib
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logfleet.config.broker import BrokerConfig
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.kinds.brokers import DIRECTORIES
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.node.broker import Broker, StartError
from logfleet.store.opening import EMBEDDED_FILE, open_store

from broker_image.tests.unit.node.broker_rig import ELSEWHERE, config, create_topic

META = "meta.properties"
PARTITIONS = 4

Change = Callable[[Path], None]


@pytest.fixture(params=["one", "several", "fleet"])
def layout(request) -> str:
    """One log directory or two, and whether the metadata is elsewhere, as a fleet's."""
    return str(request.param)


async def elsewhere(config: BrokerConfig, _: object) -> SqliteStore:
    return await SqliteStore.open(Path(config.logfleet_cluster_name))


def broker_of(path: Path, layout: str) -> Broker:
    opens = elsewhere if layout == "fleet" else open_store
    return Broker(config_of(path, layout), open_store=opens)


def config_of(path: Path, layout: str) -> BrokerConfig:
    dirs = f"{path}/a,{path}/b" if layout == "several" else f"{path}/a"
    given = {"log.dirs": dirs, "logfleet.cluster.name": str(path / "elsewhere"), "node.id": "1"}
    if layout == "fleet":
        given |= ELSEWHERE
    return config(path, **given)


async def lived(path: Path, layout: str) -> None:
    """A broker has run here in order; each directory has logs."""
    async with broker_of(path, layout) as broker:
        await create_topic(broker, "t", PARTITIONS)


def files_of(path: Path) -> dict[str, bytes]:
    """Without those of SQLite, and of locks."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and not each.name.startswith((EMBEDDED_FILE, "elsewhere", ".lock"))
    }


def logs_of(directory: Path) -> Iterator[Path]:
    return directory.glob("t-*")


def nothing(_: Path) -> None:
    pass


def without_identity(path: Path) -> None:
    (path / "a" / META).unlink()


def without_logs(path: Path) -> None:
    for log in logs_of(path / "a"):
        shutil.rmtree(log)


def without_store(path: Path) -> None:
    (path / "a" / EMBEDDED_FILE).unlink(missing_ok=True)
    (path / "elsewhere").unlink(missing_ok=True)


def of_another_store(path: Path) -> None:
    (file,) = (each for each in (path / "a" / EMBEDDED_FILE, path / "elsewhere") if each.exists())
    with contextlib.closing(sqlite3.connect(file)) as store, store:
        store.execute("UPDATE items SET value = ? WHERE key = ?", (b"theirs", CLUSTER_ID.prefix))
        store.execute("DELETE FROM items WHERE key = ?", (DIRECTORIES.key(1),))


def without_identity_of_another_store(path: Path) -> None:
    without_identity(path)
    of_another_store(path)


def without_identity_and_logs(path: Path) -> None:
    without_identity(path)
    without_logs(path)


def without_identity_and_store(path: Path) -> None:
    without_identity(path)
    without_store(path)


def all_gone(path: Path) -> None:
    for name in ("a", "b", "elsewhere"):
        each = path / name
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)


def of_another(key: str) -> Change:
    def change(path: Path) -> None:
        meta = path / "a" / META
        meta.write_text(re.sub(f"{key}=.*", f"{key}=77", meta.read_text()))

    return change


REFUSED = [
    # change to the first directory; then the refusal with one directory, with two, in a fleet
    (
        without_identity,
        r"write it back: \(echo version=1",
        r"write it back: \(echo version=1",
        r"write it back: \(echo version=1",
    ),
    (without_store, "taken over by `logfleet adopt`; else bring", "", "the store was wiped"),
    (without_identity_and_store, "bring both back", "bring .* back from", "knows no cluster"),
    (of_another_store, "belongs to cluster .*, the metadata store to theirs", "", ""),
    (without_identity_of_another_store, "is of cluster theirs and misses no", "", ""),
    (of_another("node.id"), "belongs to node.id=77", "", ""),
    (of_another("cluster.id"), "belongs to cluster 77", "to different clusters", ""),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "change, one, several, fleet", REFUSED, ids=lambda each: getattr(each, "__name__", "")
)
async def test_data_that_may_not_be_its_own_is_refused_and_not_touched(
    tmp_path: Path, layout: str, change: Change, one: str, several: str, fleet: str
) -> None:
    await lived(tmp_path, layout)
    change(tmp_path)
    before = files_of(tmp_path)
    had_store = (tmp_path / "a" / EMBEDDED_FILE).exists()
    says = {"one": one, "several": several or one, "fleet": fleet or one}[layout]
    for _ in range(2):
        with pytest.raises(StartError, match=says) as caught:
            await broker_of(tmp_path, layout).__aenter__()
        assert "\n" not in str(caught.value)
    assert files_of(tmp_path) == before
    assert (tmp_path / "a" / EMBEDDED_FILE).exists() is had_store


SERVED = [
    # what was done to the first directory, and how many of the partitions are served then
    (nothing, lambda _: PARTITIONS),
    (
        without_logs,
        lambda _: PARTITIONS,
    ),  # as with Kafka: started again, empty, in a directory that is there
    (
        without_identity_and_logs,
        lambda logs: PARTITIONS - logs,
    ),  # an empty disk in the place of one
    (all_gone, lambda _: 0),  # a new cluster
]


@pytest.mark.asyncio
@pytest.mark.parametrize("change, served", SERVED, ids=lambda each: getattr(each, "__name__", ""))
async def test_what_is_its_own_or_empty_is_served(
    tmp_path: Path, layout: str, change: Change, served: Callable[[int], int]
) -> None:
    await lived(tmp_path, layout)
    in_first = len(list(logs_of(tmp_path / "a")))
    change(tmp_path)
    async with broker_of(tmp_path, layout) as broker:
        assert len(broker.rooms.partitions) == served(in_first)
        assert all((tmp_path / "a" / META).exists() for _ in broker.rooms.disks.log_dirs)


@pytest.mark.asyncio
@pytest.mark.parametrize("missing", ["a", "ab"])
async def test_a_lost_identity_is_written_back_as_the_refusal_says(
    tmp_path: Path, layout: str, missing: str
) -> None:
    await lived(tmp_path, layout)
    before = files_of(tmp_path)
    for name in missing:
        (tmp_path / name / META).unlink(missing_ok=True)
    with pytest.raises(StartError, match="write it back") as caught:
        await broker_of(tmp_path, layout).__aenter__()
    subprocess.run(["sh", "-c", str(caught.value).partition("write it back: ")[2]], check=True)
    lines = sorted(line for each in before if each.endswith(META) for line in before[each].split())
    after = files_of(tmp_path)
    assert lines == sorted(
        line for each in after if each.endswith(META) for line in after[each].split()
    )
    async with broker_of(tmp_path, layout) as broker:
        assert len(broker.rooms.partitions) == PARTITIONS
        assert not broker.rooms.partitions.offline.by_topic()


@pytest.mark.asyncio
async def test_of_several_missing_directories_it_is_not_guessed_which_one_it_is(
    tmp_path: Path,
) -> None:
    await lived(tmp_path, "several")
    without_identity(tmp_path)
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(
        StartError, match=r"misses the directories .*, .* of broker 1 .* from a copy"
    ):
        await broker_of(tmp_path, "several").__aenter__()


@pytest.mark.asyncio
async def test_a_store_that_misses_no_directory_of_this_broker_advises_none(tmp_path: Path) -> None:
    store = await open_store(config_of(tmp_path, "one"))
    await store.close()
    (tmp_path / "a" / "t-0").mkdir()
    with pytest.raises(StartError, match="knows no cluster and misses no directory of broker 1"):
        await broker_of(tmp_path, "one").__aenter__()


@pytest.mark.asyncio
@pytest.mark.parametrize("identity", ["there", "gone"])
async def test_directories_in_another_order_are_named(tmp_path: Path, identity: str) -> None:
    await lived(tmp_path, "one")
    if identity == "gone":
        without_identity(tmp_path)
    before = files_of(tmp_path)
    given = {"log.dirs": f"{tmp_path}/b,{tmp_path}/a", "node.id": "1"}
    with pytest.raises(StartError, match=f"name {tmp_path}/a first"):
        await Broker(config(tmp_path, **given)).__aenter__()
    assert files_of(tmp_path) == before
