"""Files are whole or not there, where the path says, as the file was before: mode, owner, links, devices."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tensor_cast.errors import InvalidValueError, WriteError
from tensor_cast.files.writing import new_folder, write_text

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_the_mode_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "text\n")
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"text\n"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o666])
def test_the_mode_of_an_earlier_file_stays(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "a"
    file.write_text("old and longer")
    file.chmod(mode)
    write_text(file, "new")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", mode)
    assert time.time() - file.stat().st_mtime < 60, "the time of change is now"


@ROOT_ONLY
def test_the_owner_of_an_earlier_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    os.chown(file, 12345, 54321)
    file.chmod(0o640)
    write_text(file, "new")
    assert (file.read_text(), file.stat().st_uid, file.stat().st_gid) == ("new", 12345, 54321)
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("hops", [1, 3])
def test_links_are_followed(tmp_path: Path, hops: int) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "file"
    target.write_text("old")
    link = target
    for hop in range(hops):
        link = Path(os.path.relpath(link, tmp_path)) if not hop else link
        (tmp_path / f"link{hop}").symlink_to(link)
        link = tmp_path / f"link{hop}"
    write_text(link, "new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert names(tmp_path / "there") == ["file"]


def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(WriteError, match="cannot be written"):
        write_text(tmp_path / "a", "new")


@pytest.mark.parametrize(("old", "new"), [("old", "new and longer"), ("old and longer", "new")])
def test_a_hard_link_stays_one_file(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "a").write_text(old)
    os.link(tmp_path / "a", tmp_path / "b")
    write_text(tmp_path / "a", new)
    assert (tmp_path / "b").read_text() == new
    assert (tmp_path / "a").samefile(tmp_path / "b")
    assert names(tmp_path) == ["a", "b"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text")
    reader.join(10)
    assert (got, pipe.is_fifo()) == (["text"], True)


def test_a_device_is_written_to() -> None:
    write_text("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_device_is_an_error() -> None:
    with pytest.raises(WriteError, match="/dev/full: cannot be written: No space left on device"):
        write_text("/dev/full", "text")
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="no /dev/fd here")
def test_an_open_file_is_written_to_where_it_stands(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("before;")
        log.flush()
        write_text(f"/dev/fd/{log.fileno()}", "text;")
        log.write("after")
    assert (tmp_path / "log").read_text() == "before;text;after"


def test_a_folder_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot be written: Is a directory"):
        write_text(tmp_path, "text")
    with pytest.raises(WriteError, match="none/a: cannot be written: No such file or directory"):
        write_text(tmp_path / "none" / "a", "text")
    with pytest.raises(WriteError, match="null"):
        write_text(str(tmp_path / "a\0b"), "text")


@NOT_ROOT
def test_a_protected_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    file.chmod(0o444)
    with pytest.raises(WriteError, match="Permission denied"):
        write_text(file, "new")
    assert file.read_text() == "old"


def in_a_process(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


# A file size limit stands in for a full disk: the write fails half way with what was asked for longer than allowed.
LIMITED = """
import resource, sys
from tensor_cast.errors import WriteError
from tensor_cast.files.writing import write_text
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text(sys.argv[1], "x" * 5000)
except WriteError as error:
    print(error)
"""


@pytest.mark.parametrize("linked", [False, True])
def test_without_room_the_old_text_stays(tmp_path: Path, linked: bool) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    if linked:
        os.link(file, tmp_path / "b")
    ran = in_a_process(LIMITED, str(file))
    assert ran.stdout == f"{file}: cannot be written: File too large\n"
    assert file.read_text() == "old"
    assert names(tmp_path) == (["a", "b"] if linked else ["a"])


def test_writing_in_place_restores_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    file = tmp_path / "a"
    file.write_text("old text")
    os.link(file, tmp_path / "b")
    sync, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:  # the first is that of the copy beside, the third that of the old text
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="No space left"):
        write_text(file, "new")
    assert (tmp_path / "b").read_text() == "old text"
    assert names(tmp_path) == ["a", "b"]


HANGING = """
import os, sys, time
from tensor_cast.files import writing
def hang(*_):
    print("here", flush=True)
    time.sleep(60)
os.replace = hang
if sys.argv[2] == "file":
    writing.write_text(sys.argv[1], "new")
else:
    with writing.new_folder(sys.argv[1]) as folder:
        folder.write_csv("a.csv", ("x",), [(1,)])
        folder.publish()
"""


@contextmanager
def stopped_before_the_last_step(path: Path, kind: str) -> Iterator[None]:
    """While another process has written everything and is about to put it in place; it is killed at the end."""
    command = [sys.executable, "-c", HANGING, str(path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield
        process.send_signal(signal.SIGKILL)


def half_written(folder: Path) -> list[str]:
    return [name for name in names(folder) if name.startswith(".a.")]


@pytest.mark.parametrize("old", [None, "old"])
def test_a_killed_run_leaves_the_old_file_and_the_next_cleans_up(tmp_path: Path, old: str | None) -> None:
    path = tmp_path / "a"
    if old is not None:
        path.write_text(old)
    with stopped_before_the_last_step(path, "file"):
        pass
    assert (path.read_text() if path.exists() else None) == old
    assert len(half_written(tmp_path)) == 1
    write_text(path, "newer")
    assert (names(tmp_path), path.read_text()) == (["a"], "newer")


def test_a_killed_run_leaves_no_folder_and_the_next_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with stopped_before_the_last_step(path, "folder"):
        pass
    assert not path.exists()
    assert len(half_written(tmp_path)) == 1
    with new_folder(path) as folder:
        folder.publish()
    assert names(tmp_path) == ["a"]


def test_what_a_living_run_is_writing_stays(tmp_path: Path) -> None:
    with stopped_before_the_last_step(tmp_path / "a", "folder"):
        write_text(tmp_path / "a", "text")
        assert len(half_written(tmp_path)) == 1
    with stopped_before_the_last_step(tmp_path / "a", "file"):
        with pytest.raises(InvalidValueError), new_folder(tmp_path / "a"):
            pass
        write_text(tmp_path / "a", "newer")
        assert len(half_written(tmp_path)) == 1, "that of the killed run is gone, that of the living one is not"


def test_names_like_ours_that_are_not_ours_stay(tmp_path: Path) -> None:
    kept = [".a.notes", ".a.0123456789abcdef.partial.txt", ".b.0123456789abcdef.partial"]
    for name in kept:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".a.0123456789abcdef.partial").symlink_to("elsewhere")
    write_text(tmp_path / "a", "text")
    assert set(names(tmp_path)) == {"a", *kept, ".a.0123456789abcdef.partial"}


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "out") as folder:
        folder.write_csv("a.csv", ("x", "y"), [(1, "a,b")])
        folder.write_csv("in/b.csv", ("x",), [])
        assert not (tmp_path / "deep" / "out").exists()
        folder.publish()
    rows = list(csv.reader((tmp_path / "deep" / "out" / "a.csv").read_text().splitlines()))
    assert rows == [["x", "y"], ["1", "a,b"]]
    assert (tmp_path / "deep" / "out" / "in" / "b.csv").read_text() == "x\n"
    assert names(tmp_path / "deep") == ["out"]


def test_a_folder_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "out") as folder:
        folder.write_csv("a.csv", ("x",), [])
    assert names(tmp_path) == [], "not even the parents that were made for it"


@pytest.mark.parametrize(
    "name", ["../a", "/a", "a/../../b", "", ".", "..", "a//b", "a\\b", "a\0b", "a\nb", "é" * 128, "\ud800"]
)
def test_nothing_is_written_outside_the_folder(tmp_path: Path, name: str) -> None:
    with new_folder(tmp_path / "out") as folder, pytest.raises(InvalidValueError, match="no name of a file"):
        folder.write_csv(name, ("x",), [])
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_stands_there_is_noticed_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    make: dict[str, Callable[[], None]] = {
        "folder": path.mkdir,
        "file": path.touch,
        "link": lambda: path.symlink_to("nowhere"),
    }
    make[kind]()
    with pytest.raises(InvalidValueError, match="exists already"), new_folder(path):
        pass
    assert names(tmp_path) == ["out"]


def test_of_two_folders_of_one_name_the_second_says_so(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as first, new_folder(tmp_path / "out") as second:
        first.write_csv("first.csv", ("x",), [])
        second.write_csv("second.csv", ("x",), [])
        first.publish()
        with pytest.raises(WriteError, match="another run has written it meanwhile"):
            second.publish()
    assert names(tmp_path / "out") == ["first.csv"]
    assert names(tmp_path) == ["out"]


def test_a_place_that_cannot_be_is_noticed_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="cannot be written"), new_folder(tmp_path / "file" / "out"):
        pass
