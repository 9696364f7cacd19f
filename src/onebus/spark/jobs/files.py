"""The files of a lake, on whatever file system Spark can reach: a folder, HDFS, an object store."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from onebus.errors import LakeDamaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE: Final = "file:"


class Files:
    """What is below one folder. Paths are relative to it, with slashes between their parts."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._jvm = jvm
        given = root if ":/" in root else f"{_FILE}//{Path(root).absolute()}"
        path = self._hadoop.Path(given)
        self._files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        self.root: str = self._files.makeQualified(path).toString().rstrip("/")
        self._local = Path(path.toUri().getPath()) if self.root.startswith(_FILE) else None

    def url(self, path: str) -> str:
        """Return where a file or folder is, in a form that Spark reads."""
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, sorted; nothing if there is no such folder."""
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path(folder)))

    def walk(self, folder: str, suffix: str) -> list[str]:
        """Return the files below a folder whose names end so, relative to that folder, sorted."""
        found: list[str] = []
        if self.exists(folder):
            start = len(self._path(folder).toUri().getPath().rstrip("/")) + 1
            listing = self._files.listFiles(self._path(folder), True)
            while listing.hasNext():
                path = listing.next().getPath().toUri().getPath()
                if path.endswith(suffix):
                    found.append(path[start:])
        return sorted(found)

    def age_seconds(self, path: str) -> float:
        """Return for how long nobody has changed a file or folder."""
        now_ms: int = self._jvm.java.lang.System.currentTimeMillis()
        return (now_ms - int(self._files.getFileStatus(self._path(path)).getModificationTime())) / 1000

    def read(self, path: str) -> bytes:
        stream = self._files.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, path: str, data: bytes) -> bool:
        """Write a file at once, or not at all; False if it exists."""
        temporary = f"{path.rpartition('/')[0]}/.{uuid4().hex}"
        if self._local is not None:
            return self._create_here(self._local / path, self._local / temporary, data)
        stream = self._files.create(self._path(temporary), False)
        stream.write(data)
        stream.close()
        context = self._hadoop.FileContext.getFileContext(self._path(path).toUri())
        none = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
        )
        try:
            context.rename(self._path(temporary), self._path(path), none)
        except Exception:
            self._files.delete(self._path(temporary), False)
            if self.exists(path):
                return False
            raise
        return True

    def move(self, source: str, target: str) -> None:
        """Move a file, unless that was done before.

        Raises:
            LakeDamaged: the file system does not do it.
        """
        if not self.exists(source):
            return
        self._files.mkdirs(self._path(target.rpartition("/")[0]))
        # Somebody else may be doing the same.
        if not self._files.rename(self._path(source), self._path(target)) and not self.exists(target):
            raise LakeDamaged(f"{self.url(source)} cannot be moved to {self.url(target)}. Look at the permissions.")

    def delete(self, path: str) -> None:
        """Remove a file or a folder, if there is one."""
        self._files.delete(self._path(path), True)

    def settle(self) -> None:
        """Wait until what was written is on the disks of this machine, where they are what holds the files."""
        if self._local is not None:
            os.sync()

    def _create_here(self, path: Path, temporary: Path, data: bytes) -> bool:
        # Renaming would replace a file that exists, and a link does not.
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def _path(self, path: str) -> Any:
        # The text of a Path is a URL already, in which Spark's own escapes are no escapes.
        return self._hadoop.Path(self.url(path))
