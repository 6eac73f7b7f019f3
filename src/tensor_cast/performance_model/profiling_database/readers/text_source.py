"""Bounded, change-aware reading of text tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tensor_cast.errors import DataFileError

__all__ = ["LFS_MARKER", "is_lfs_pointer", "read_lines"]

LFS_MARKER = b"version https://git-lfs.github.com/spec/v1"
MAX_LINE_BYTES = 1 << 20


def is_lfs_pointer(path: Path) -> bool:
    """Whether the file is a Git-LFS pointer standing in for data."""
    with path.open("rb") as stream:
        return stream.read(len(LFS_MARKER)) == LFS_MARKER


def read_lines(path: Path) -> Iterator[str]:
    """Decoded lines without byte-order mark, never more than 1 MiB each.

    Raises DataFileError with code `lfs_pointer`, `line_too_long`, `encoding`, `file_changed` or `unreadable`.
    """
    try:
        with path.open("rb") as stream:
            before = _identity(stream.fileno())
            yield from _lines(path, stream)
            if _identity(stream.fileno()) != before or _identity(path) != before:
                raise DataFileError(path, "changed while it was read: load it again", code="file_changed")
    except OSError as error:
        raise DataFileError(path, f"cannot be read: {error.strerror or error}", code="unreadable") from None


def _lines(path: Path, stream: object) -> Iterator[str]:
    readline = stream.readline  # type: ignore[attr-defined]
    number = 0
    while raw := readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1 and raw.startswith(LFS_MARKER):
            problem = "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'"
            raise DataFileError(path, problem, line=1, code="lfs_pointer")
        if len(raw) > MAX_LINE_BYTES:
            raise DataFileError(path, f"line longer than {MAX_LINE_BYTES} bytes", line=number, code="line_too_long")
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise DataFileError(path, "not UTF-8 text", line=number, code="encoding") from None


def _identity(target: int | Path) -> tuple[int, int, int]:
    status = os.stat(target)
    return (status.st_ino, status.st_size, status.st_mtime_ns)
