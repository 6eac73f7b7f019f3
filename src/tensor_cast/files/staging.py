"""Hidden files and folders beside the place they will take, locked while their maker lives.

A name beside `NAME` is `.NAME.<16 random hex digits>.partial`.  A process that is killed lets go of its lock, so the
next one that writes to the same place knows what it may remove; whatever is locked, belongs to another user or is
called differently stays.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tensor_cast.errors import WriteError

__all__ = ["folder_beside", "locked", "open_beside", "put_in_place"]

_ATTEMPTS: Final = 100
_NAME_SHOWN: Final = 40
_SUFFIX: Final = ".partial"
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)


def open_beside(path: Path, mode: int = 0o666) -> tuple[int, Path]:
    """A new file beside `path`, opened exclusively for writing, and its name.  Raises OSError."""
    _remove_abandoned(path)
    for _ in range(_ATTEMPTS):
        name = _new_name(path)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, mode)
        if _held(descriptor, name):
            return descriptor, name
        os.close(descriptor)
    raise FileExistsError(17, "no free name beside it", str(path))


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A new empty folder beside `path`, whose missing parents are made; gone at the end, with parents left empty."""
    made = _make_parents(path.parent)
    try:
        _remove_abandoned(path)
        descriptor, name = _new_folder(path)
        try:
            yield name
        finally:
            shutil.rmtree(name, ignore_errors=True)
            os.close(descriptor)
    finally:
        for parent in reversed(made):
            with suppress(OSError):
                parent.rmdir()


def put_in_place(folder: Path, path: Path) -> None:
    """Give a finished folder its name.  Raises WriteError where something stands there by now."""
    try:
        os.replace(folder, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise WriteError(path, "another run has written it meanwhile") from None
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs from changing a folder.  Raises WriteError where one is doing so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            raise WriteError(folder, "another run is writing it") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def _new_folder(path: Path) -> tuple[int, Path]:
    for _ in range(_ATTEMPTS):
        name = _new_name(path)
        name.mkdir()
        with suppress(FileNotFoundError):
            descriptor = os.open(name, os.O_RDONLY | _NO_FOLLOW)
            if _held(descriptor, name):
                return descriptor, name
            os.close(descriptor)
    raise FileExistsError(17, "no free name beside it", str(path))


def _make_parents(folder: Path) -> list[Path]:
    """The folders that had to be made, outermost first."""
    missing = []
    while not folder.exists() and not folder.is_symlink():
        missing.append(folder)
        folder = folder.parent
    missing.reverse()
    for one in missing:
        one.mkdir(exist_ok=True)
    return missing


def _prefix(path: Path) -> str:
    return f".{path.name[:_NAME_SHOWN]}."


def _new_name(path: Path) -> Path:
    return path.parent / f"{_prefix(path)}{os.urandom(8).hex()}{_SUFFIX}"


def _held(descriptor: int, name: Path) -> bool:
    """Lock what was just made; False where another process took it for abandoned before the lock was there."""
    try:
        _lock(descriptor)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: there nobody takes anything for abandoned
    return _is(descriptor, name)


def _lock(descriptor: int) -> None:
    """Lock an open file without waiting.  Raises BlockingIOError where another process holds it."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is(descriptor: int, name: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(name))
    except FileNotFoundError:
        return False


def _remove_abandoned(path: Path) -> None:
    """Remove what killed processes left beside `path`; what cannot be removed stays."""
    form = re.compile(re.escape(_prefix(path)) + "[0-9a-f]{16}" + re.escape(_SUFFIX))
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in [entry for entry in entries if form.fullmatch(entry.name)]:
            with suppress(OSError):
                _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    is_folder = stat.S_ISDIR(found.st_mode)
    if found.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(found.st_mode)):
        return
    descriptor = os.open(entry.path, os.O_RDONLY | _NO_FOLLOW)
    try:
        _lock(descriptor)
        if is_folder:
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    finally:
        os.close(descriptor)
