# ruff: noqa: INP001  (a script of its own, copied alone into a build)
"""Prepares the PySpark of this Python for the jobs: `make setup` and the image's build run it after the packages are installed.

usage: prepare_spark.py, with the Python of the environment. Beside it lie fetch_jars.py and the lock files.

Afterwards `pyspark/python/lib` holds no zip files: Spark puts them first in the path of its Python workers, and they hold no bytecode,
so that each new worker would compile all modules that it imports. The modules of the installed package serve instead. All modules in
site-packages have bytecode, as users of the image cannot write any. `pyspark/jars` holds the jars of the lock files. `pyspark/conf` holds the
files of `conf`, where that lies beside this program (the image has it in a later layer): without them Spark logs 1,300 lines per job.

Files are only added and removed, never changed: installers link them to files of their caches.
If a jar cannot be fetched, one line says so and the program ends with 0; with the environment variable CI it ends with 1.
"""

import compileall
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from fetch_jars import JarUnavailable, fetched

HERE = Path(__file__).resolve().parent
LOCKS = (HERE / "jars.lock", HERE / "tables.lock")
ADDED = "added-by-logfleet.txt"
"""In `pyspark/jars`: the names of the jars that this program added, one a line."""


def installed_spark() -> Path:
    """The folder of the package pyspark, which is not imported."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit(f"pyspark is not installed for {sys.executable}; install requirements.lock first")
    return Path(spec.origin).parent


def remove_zips(spark: Path) -> None:
    for archive in (spark / "python" / "lib").glob("*.zip"):
        archive.unlink()


def compile_modules(packages: Path) -> None:
    """Every module below `packages` has bytecode, but for those that are of another Python's syntax, such as templates."""
    compileall.compile_dir(packages, quiet=2)


def cache() -> Path:
    """Where fetched jars are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "logfleet" / "spark-jars"


def add_conf(spark: Path, conf: Path) -> None:
    if conf.is_dir():
        shutil.copytree(conf, spark / "conf", dirs_exist_ok=True)


def add_jars(spark: Path, locks: tuple[Path, ...]) -> None:
    """The jars of the locks are in `pyspark/jars`, and none that an earlier run added for another lock. Raises JarUnavailable."""
    folder = spark / "jars"
    list_of_added = folder / ADDED
    before = list_of_added.read_text().split() if list_of_added.exists() else []
    wanted = [jar for lock in locks for jar in fetched(lock, cache())]
    names = [jar.name for jar in wanted]
    list_of_added.write_text("".join(f"{name}\n" for name in sorted({*before, *names})))
    for name in set(before) - set(names):
        (folder / name).unlink(missing_ok=True)
    for jar in wanted:
        part = folder / f"{jar.name}.part"
        shutil.copyfile(jar, part)
        part.replace(folder / jar.name)
    list_of_added.write_text("".join(f"{name}\n" for name in sorted(names)))


def main() -> None:
    spark = installed_spark()
    remove_zips(spark)
    compile_modules(spark.parent)
    add_conf(spark, HERE / "conf")
    try:
        add_jars(spark, LOCKS)
    except JarUnavailable as error:
        sentence = (
            f"Spark has no jars for its Kafka connector and Delta Lake: could not fetch {error}; "
            "set MAVEN_REPOSITORY to a Maven repository that can be reached and run this again"
        )
        if os.environ.get("CI"):
            sys.exit(sentence)
        sys.stderr.write(f"{sentence}\n")


if __name__ == "__main__":
    main()
