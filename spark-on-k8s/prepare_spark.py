# ruff: noqa: INP001  (a script of its own, copied alone into a build)
"""Prepares the installed PySpark for the jobs. `make setup` and the build of the image run it.

usage: prepare_spark.py, with the Python of the environment, after the packages are installed.
fetch_jars.py and the lock files must be in the same folder.

- It removes the zip files in `pyspark/python/lib`. Spark puts them first in the path of its Python
  workers, and they contain no bytecode, so each new worker would compile all modules that it
  imports. The workers then import the modules of the installed package.
- It compiles all modules in site-packages, as users of the image cannot write bytecode there.
- It adds the jars of the lock files to `pyspark/jars`.
- It copies the files of `conf`, if that folder is beside this program, to `pyspark/conf`: without
  them Spark logs 1,300 lines per job. The image adds them in a later layer.

Files are only added and removed, never changed, because installers link them to files in their
caches. If a jar cannot be fetched, the program says so in one line and ends with 0; with the
environment variable CI it ends with 1.
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
"""File in `pyspark/jars` with the names of the jars that this program added, one per line."""


def installed_spark() -> Path:
    """Return the folder of the package pyspark, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit(f"pyspark is not installed for {sys.executable}; install requirements.lock first")
    return Path(spec.origin).parent


def remove_zips(spark: Path) -> None:
    for archive in (spark / "python" / "lib").glob("*.zip"):
        archive.unlink()


def compile_modules(packages: Path) -> None:
    """Compile every module below `packages`.

    Modules that this Python cannot parse, such as templates, are skipped.
    """
    compileall.compile_dir(packages, quiet=2)


def cache() -> Path:
    """Return the folder in which fetched jars are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "logfleet" / "spark-jars"


def add_conf(spark: Path, conf: Path) -> None:
    if conf.is_dir():
        shutil.copytree(conf, spark / "conf", dirs_exist_ok=True)


def add_jars(spark: Path, locks: tuple[Path, ...]) -> None:
    """Add the jars of the locks to `pyspark/jars`.

    Remove those that an earlier run added for old locks.

    Raises JarUnavailable.
    """
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
