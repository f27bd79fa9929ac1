"""What `make setup` and the image's build do to PySpark once it is installed: no zip files, bytecode, the locked jars, our configuration."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from e2e.harness.images import ROOT

SPARK = ROOT / "spark-on-k8s"


@pytest.fixture
def prepare(monkeypatch):
    monkeypatch.syspath_prepend(SPARK)
    return importlib.import_module("prepare_spark")


@pytest.fixture
def jars(prepare, monkeypatch, tmp_path):
    """The module that fetches; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)
    return sys.modules["fetch_jars"]


@pytest.fixture
def installed(prepare, monkeypatch, tmp_path):
    """A pyspark of one module, one zip file and one jar, which is found instead of the real one."""
    spark = tmp_path / "site-packages" / "pyspark"
    for folder in ("jars", "python/lib"):
        (spark / folder).mkdir(parents=True)
    (spark / "__init__.py").write_text("")
    (spark / "worker.py").write_text("answer = 42")
    (spark / "jars" / "spark-core.jar").write_bytes(b"its own")
    cached = tmp_path / "installer" / "pyspark.zip"
    cached.parent.mkdir()
    cached.write_bytes(b"sources")
    (spark / "python/lib/pyspark.zip").hardlink_to(cached)
    found = importlib.util.spec_from_file_location("pyspark", spark / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)
    return spark


def lock_of(file: Path, **contents: bytes) -> Path:
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  org/x/1/{name}.jar"
        for name, content in contents.items()
    ]
    file.write_text("\n".join(["# comment", *lines, ""]))
    return file


def test_the_connector_is_of_the_locked_spark(jars):
    pinned = next(
        line.split("==")[1].split()[0]
        for line in (SPARK / "requirements.lock").read_text().splitlines()
        if line.startswith("pyspark==")
    )
    paths = [path for _, path in jars.locked((SPARK / "jars.lock").read_text())]
    assert f"spark-sql-kafka-0-10_2.13-{pinned}.jar" in {Path(path).name for path in paths}
    assert len(paths) == 4
    tables = [path for _, path in jars.locked((SPARK / "tables.lock").read_text())]
    assert any(f"delta-spark_{pinned.rpartition('.')[0]}_2.13" in path for path in tables)


def test_a_jar_with_another_hash_is_refused_and_not_kept(jars, tmp_path, monkeypatch):
    monkeypatch.setattr(jars, "fetch", lambda _url: b"something else")
    lock = lock_of(tmp_path / "jars.lock", x=b"jar")
    with pytest.raises(SystemExit, match=r"org/x/1/x\.jar has the hash"):
        jars.fetched(lock, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_jar_that_is_there_is_not_fetched_again(jars, tmp_path, monkeypatch):
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return b"jar"

    monkeypatch.setattr(jars, "fetch", fetch)
    monkeypatch.setenv("MAVEN_REPOSITORY", "https://mirror.test/maven/")
    lock = lock_of(tmp_path / "jars.lock", x=b"jar")
    for _ in range(2):
        assert jars.fetched(lock, tmp_path / "out") == [tmp_path / "out" / "x.jar"]
    assert asked == ["https://mirror.test/maven/org/x/1/x.jar"]
    assert (tmp_path / "out" / "x.jar").read_bytes() == b"jar"


def test_workers_find_modules_with_bytecode_and_no_zip_files(
    prepare, jars, installed, tmp_path, monkeypatch
):
    monkeypatch.setattr(jars, "fetch", lambda _url: b"jar")
    monkeypatch.setattr(prepare, "LOCKS", (lock_of(tmp_path / "jars.lock", x=b"jar"),))
    prepare.main()
    assert list((installed / "python/lib").iterdir()) == []
    assert Path(importlib.util.cache_from_source(str(installed / "worker.py"))).exists()
    # an installer links files from its cache
    assert (tmp_path / "installer" / "pyspark.zip").read_bytes() == b"sources"
    assert (installed / "jars" / "x.jar").read_bytes() == b"jar"
    shipped = {path.name: path.read_text() for path in (SPARK / "conf").iterdir()}
    assert {path.name: path.read_text() for path in (installed / "conf").iterdir()} == shipped


def test_a_jar_that_left_the_lock_leaves_spark_and_its_own_stay(
    prepare, jars, installed, tmp_path, monkeypatch
):
    contents = {"old.jar": b"old", "kept.jar": b"kept"}
    monkeypatch.setattr(jars, "fetch", lambda url: contents[url.rpartition("/")[2]])
    lock = lock_of(tmp_path / "jars.lock", old=b"old", kept=b"kept")
    prepare.add_jars(installed, (lock,))
    (installed / "jars" / "users.jar").write_bytes(b"of the user")
    prepare.add_jars(installed, (lock_of(lock, kept=b"kept"),))
    there = {path.name for path in (installed / "jars").glob("*.jar")}
    assert there == {"spark-core.jar", "kept.jar", "users.jar"}


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}])
def test_without_a_repository_one_line_names_what_is_missing_and_only_ci_fails(
    prepare, jars, installed, tmp_path, monkeypatch, capsys, environment
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MAVEN_REPOSITORY", (tmp_path / "nothing").as_uri())
    monkeypatch.setattr(jars, "ATTEMPTS", 1)
    monkeypatch.setattr(prepare, "LOCKS", (lock_of(tmp_path / "jars.lock", x=b"jar"),))
    try:
        prepare.main()
    except SystemExit as ended:
        assert environment
        line = str(ended.code)
    else:
        assert not environment
        (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Spark has no jars for its Kafka connector and Delta Lake")
    assert "nothing/org/x/1/x.jar" in line
    assert "set MAVEN_REPOSITORY" in line
    assert not (installed / "python/lib/pyspark.zip").exists()
