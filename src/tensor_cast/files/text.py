"""Bounded, change-aware reading of text tables."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import chain
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
    """Decoded lines with their line ends and without byte-order mark, never more than 1 MiB each, read once.

    `cut_line` is the number of a last line that has no line end, known once every line was read.  Raises DataFileError
    with code `lfs_pointer`, `line_too_long`, `encoding`, `file_changed` or `unreadable`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_line: int | None = None
        self._count = 0

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[list[str]]:
        """Whole lines, many at a time: a table of a million rows is a few hundred steps of this loop."""
        path = self.path
        try:
            _only_regular(path)
            with path.open("rb") as stream:
                before = _identity(stream.fileno())
                yield from self._read(stream)
                if _identity(stream.fileno()) != before or _identity(path) != before:
                    raise DataFileError(path, "changed while it was read: load it again", code="file_changed")
        except OSError as error:
            raise DataFileError(path, f"cannot be read: {error.strerror or error}", code="unreadable") from None

    def _read(self, stream: IO[bytes]) -> Iterator[list[str]]:
        kept = b""
        while block := stream.read(MAX_LINE_BYTES):
            first = block.find(b"\n")
            if len(kept) + (first if first >= 0 else len(block)) > MAX_LINE_BYTES:
                self._check_start(kept)
                problem = f"line longer than {MAX_LINE_BYTES} bytes"
                raise DataFileError(self.path, problem, line=self._count + 1, code="line_too_long")
            whole, end, rest = (kept + block).rpartition(b"\n")
            if end:
                yield self._decoded(whole + end)
            kept = rest
        if kept:
            yield self._decoded(kept)
            self.cut_line = self._count

    def _decoded(self, raw: bytes) -> list[str]:
        self._check_start(raw)
        try:
            text = raw.decode("utf-8-sig" if not self._count else "utf-8")
        except UnicodeDecodeError as error:
            line = self._count + 1 + raw.count(b"\n", 0, error.start)
            raise DataFileError(self.path, "not UTF-8 text", line=line, code="encoding") from None
        lines = [line + "\n" for line in text.split("\n")]
        last = lines.pop()[:-1]
        if last:
            lines.append(last)
        self._count += len(lines)
        return lines

    def _check_start(self, raw: bytes) -> None:
        """Refuses what the beginning of a file shows to be something else."""
        if self._count:
            return
        if raw.startswith(LFS_MARKER):
            problem = "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"
            raise DataFileError(self.path, problem, line=1, code="lfs_pointer")
        if raw.startswith(_WIDE_MARKS) or b"\x00" in raw.partition(b"\n")[0]:
            problem = "not UTF-8 text but UTF-16 or binary: save it as UTF-8"
            raise DataFileError(self.path, problem, line=1, code="encoding")


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
