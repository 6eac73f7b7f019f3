"""Files and folders that are written whole or not at all, where the path says, and nowhere else."""

from __future__ import annotations

import csv
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from tensor_cast.errors import InvalidValueError, WriteError
from tensor_cast.files.staging import folder_beside, open_beside, put_in_place

__all__ = ["NewFolder", "new_folder", "write_text"]

_OPEN_FILE: Final = re.compile(r"/(?:dev|proc/self|proc/(?P<process>\d+))/fd/(?P<number>\d+)")
_MOST_LINKS: Final = 40
_LONGEST_NAME: Final = 255


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text where `path` says.

    A regular file holds the old or the new text at every moment, also for a reader and after a crash.  Links are
    followed; an earlier file keeps its mode and owner.  One with further names (hard links), or with an owner that
    cannot be kept, is rewritten in place, and has its old text again if that fails.  A device, a pipe or an open file
    (`/dev/stdout`, `/dev/fd/3`) is written to.  Raises WriteError.
    """
    target = Path(path)
    with _as_write_error(target):
        data = text.encode("utf-8")
        found = _status(target)
        number = _open_file(target)
        if number is not None:
            _write_all(number, data)
        elif found is not None and stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif found is not None and not stat.S_ISREG(found.st_mode):
            _write_to(target, data)
        else:
            _replace(Path(os.path.realpath(target)), data, found)


@contextmanager
def _as_write_error(target: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(target, error.strerror or str(error)) from None
    except UnicodeEncodeError as error:
        raise WriteError(target, f"{error.object[error.start]!r} is no character of UTF-8 text") from None
    except ValueError as error:  # a NUL in the path
        raise WriteError(repr(str(target)), str(error)) from None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _open_file(path: Path) -> int | None:
    """The number of the open file that `/dev/stdout`, `/dev/fd/3` and links to them stand for."""
    here = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        found = _OPEN_FILE.fullmatch(here)
        if found is not None:
            own = found["process"] in (None, str(os.getpid()))
            return int(found["number"]) if own else None
        if not os.path.islink(here):
            return None
        here = os.path.normpath(os.path.join(os.path.dirname(here), os.readlink(here)))
    return None


def _write_to(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _replace(path: Path, data: bytes, found: os.stat_result | None) -> None:
    if found is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        descriptor, beside = open_beside(path, 0o666 if found is None else 0o600)
    except PermissionError:
        if found is None:
            raise
        _rewrite(path, data)  # the folder takes no new file, but this one may be changed
        return
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
        if found is not None and (found.st_nlink > 1 or not _keep_owner(descriptor, found)):
            _rewrite(path, data)
            return
        if found is not None:
            shutil.copystat(path, beside)
            os.utime(beside)
        os.replace(beside, path)
        _sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)
        os.close(descriptor)


def _keep_owner(descriptor: int, found: os.stat_result) -> bool:
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) == (found.st_uid, found.st_gid):
        return True
    try:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    except OSError:
        return False
    return True


def _rewrite(path: Path, data: bytes) -> None:
    """Write over the file itself; a failure writes the old bytes back, which need no room that is not there."""
    with path.open("r+b", buffering=0) as file:
        before = file.readall()
        try:
            _overwrite(file.fileno(), data)
        except BaseException:
            _overwrite(file.fileno(), before)
            raise


def _overwrite(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a rename last, as far as the file system can; it has happened in any case."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class NewFolder:
    """A folder in the making: nothing of it is to be seen under its name until `publish`."""

    def __init__(self, path: Path, place: Path) -> None:
        self._path = path
        self._place = place

    def write_csv(self, name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a table as `name`, a path inside the folder such as `client/ttft.csv`.

        Raises InvalidValueError for a name that leads out of the folder or is none, WriteError where it exists or
        cannot be written.
        """
        with self._file(name) as out:
            writer = csv.writer(out)
            writer.writerow(head)
            writer.writerows(rows)

    def write_text(self, name: str, text: str) -> None:
        """Write UTF-8 text as `name`, under the same rules."""
        with self._file(name) as out:
            out.write(text)

    @contextmanager
    def _file(self, name: str) -> Iterator[TextIO]:
        """A new file of the folder, safely on disk once it is left."""
        file = self._place.joinpath(*_parts(name))
        with _as_write_error(self._path / name):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", newline="", encoding="utf-8") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())

    def publish(self) -> None:
        """Give the folder its name.  Raises WriteError where another process took the name meanwhile."""
        with _as_write_error(self._path):
            put_in_place(self._place, self._path)
            _sync_folder(self._path.parent)


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    for part in parts:
        if part in ("", ".", "..") or "\\" in part or not part.isprintable() or len(part.encode()) > _LONGEST_NAME:
            raise InvalidValueError(f"{name!r} is no name of a file inside a folder")
    return parts


@contextmanager
def new_folder(path: str | Path) -> Iterator[NewFolder]:
    """A folder to fill and `publish`; without that nothing is left of it.

    Raises InvalidValueError at once where `path` exists, WriteError where no folder can be made there.
    """
    target = Path(path)
    with _as_write_error(target):
        exists = os.path.lexists(target)
    if exists:
        raise InvalidValueError(f"{target}: exists already; name a new folder")
    beside = folder_beside(Path(os.path.abspath(target)))
    with _as_write_error(target):
        place = beside.__enter__()
    try:
        yield NewFolder(target, place)
    finally:
        beside.__exit__(None, None, None)
