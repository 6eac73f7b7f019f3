"""Bounded, change-aware reading of text tables."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tensor_cast.errors import DataFileError

__all__ = ["LFS_MARKER", "TextLines", "is_lfs_pointer"]

LFS_MARKER = b"version https://git-lfs.github.com/spec/v1"
MAX_LINE_BYTES = 1 << 20
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def is_lfs_pointer(path: Path) -> bool:
    """Whether the file is a Git-LFS pointer standing in for data."""
    with path.open("rb") as stream:
        return stream.read(len(LFS_MARKER)) == LFS_MARKER


class TextLines:
    """Decoded lines without byte-order mark, never more than 1 MiB each, read once.

    `cut_line` is the number of a last line that has no line end, known once every line was read.  Raises DataFileError
    with code `lfs_pointer`, `line_too_long`, `encoding`, `file_changed` or `unreadable`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_line: int | None = None

    def __iter__(self) -> Iterator[str]:
        path = self.path
        try:
            _only_regular(path)
            with path.open("rb") as stream:
                before = _identity(stream.fileno())
                yield from self._lines(stream)
                if _identity(stream.fileno()) != before or _identity(path) != before:
                    raise DataFileError(path, "changed while it was read: load it again", code="file_changed")
        except OSError as error:
            raise DataFileError(path, f"cannot be read: {error.strerror or error}", code="unreadable") from None

    def _lines(self, stream: IO[bytes]) -> Iterator[str]:
        readline, number, raw = stream.readline, 0, b""
        while line := readline(MAX_LINE_BYTES + 1):
            number, raw = number + 1, line
            if number == 1:
                yield self._first(raw)
                continue
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                raise DataFileError(self.path, "not UTF-8 text", line=number, code="encoding") from None
            if len(raw) > MAX_LINE_BYTES:
                raise self._too_long(number)
            yield text
        if raw and not raw.endswith(b"\n"):
            self.cut_line = number

    def _first(self, raw: bytes) -> str:
        if raw.startswith(LFS_MARKER):
            problem = "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"
            raise DataFileError(self.path, problem, line=1, code="lfs_pointer")
        if raw.startswith(_WIDE_MARKS) or b"\x00" in raw:
            problem = "not UTF-8 text but UTF-16 or binary: save it as UTF-8"
            raise DataFileError(self.path, problem, line=1, code="encoding")
        if len(raw) > MAX_LINE_BYTES:
            raise self._too_long(1)
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DataFileError(self.path, "not UTF-8 text", line=1, code="encoding") from None

    def _too_long(self, number: int) -> DataFileError:
        return DataFileError(self.path, f"line longer than {MAX_LINE_BYTES} bytes", line=number, code="line_too_long")


def _only_regular(path: Path) -> None:
    """Opening a pipe would wait for a writer; a folder or a device is no table."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise DataFileError(path, "is a directory, not a file", code="unreadable")
    if not stat.S_ISREG(mode):
        raise DataFileError(path, "is not a regular file", code="unreadable")


def _identity(target: int | Path) -> tuple[int, int, int]:
    status = os.stat(target)
    return (status.st_ino, status.st_size, status.st_mtime_ns)
