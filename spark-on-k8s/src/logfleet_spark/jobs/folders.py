"""Folders by path or URL, as Hadoop sees them: local disks, HDFS, object stores.

A URL stays one: `hdfs://name/x` joined with `y` is `hdfs://name/x/y`. (A PurePosixPath makes `hdfs:/name/x/y` of it.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


def joined(folder: str, *names: str) -> str:
    """A place below a folder; both may be URLs."""
    return "/".join([folder.rstrip("/") or "", *names])


def beside(folder: str, word: str) -> str:
    """A folder next to another one: its name with a word behind it."""
    return f"{folder.rstrip('/')}-{word}"


@dataclass(frozen=True)
class Folders:
    """What a session's Hadoop can do with files. Errors are those of Hadoop, as Py4JJavaError."""

    spark: SparkSession

    def exists(self, place: str) -> bool:
        path, files = self._open(place)
        return bool(files.exists(path))

    def matching(self, pattern: str) -> list[str]:
        """Places that match a glob, `*` within a name, sorted; none where the folder is not there."""
        path, files = self._open(pattern)
        found = files.globStatus(path)
        return sorted(str(status.getPath().toString()) for status in found or ())

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; none where it is not there."""
        path, files = self._open(folder)
        if not files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in files.listStatus(path))

    def delete(self, place: str) -> None:
        """Nothing is there afterwards."""
        path, files = self._open(place)
        files.delete(path, True)

    def make(self, folder: str) -> None:
        path, files = self._open(folder)
        files.mkdirs(path)

    def move(self, source: str, target: str) -> None:
        """The file is at `target`, in a folder that is there. Raises FileExistsError if something was there before."""
        origin, files = self._open(source)
        if not files.rename(origin, self._path(target)):
            raise FileExistsError(f"{source} could not be moved to {target}")

    def write_text(self, place: str, text: str) -> None:
        """The text is there, unless a file was: then FileExistsError is raised and that one stays."""
        path, files = self._open(place)
        if files.exists(path):
            raise FileExistsError(place)
        stream = files.create(path, False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def read_text(self, place: str) -> str | None:
        """What a small file holds; None if there is none."""
        path, files = self._open(place)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def moves(self, staging: str, folder: str) -> Iterator[tuple[str, str]]:
        """(data file below `staging`, name of its subfolder) of what Spark wrote there partitioned by one column."""
        for each in self.matching(joined(staging, "*=*", "part-*")):
            yield each, each.split("/")[-2]

    def _open(self, place: str) -> tuple[Any, Any]:
        path = self._path(place)
        jvm_session: Any = self.spark._jsparkSession  # noqa: SLF001  (pyspark has no file system of its own)
        return path, path.getFileSystem(jvm_session.sessionState().newHadoopConf())

    def _path(self, place: str) -> Any:
        jvm: Any = self.spark._jvm  # noqa: SLF001
        return jvm.org.apache.hadoop.fs.Path(place)
