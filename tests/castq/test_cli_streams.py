"""Every command: files that are missing, output that cannot be written, standard input, characters that steer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from castq.commands import show
from castq.streams import printable

PROGRAM = """stage desk : fifo;
workload { arrive batch(3); }
session { set came = now; run desk (2); observe stay = now - came; end; }
run { horizon 12; }
"""
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
OPERATOR = {"op": "aten.mm.default", "inputs": [{"shape": [4, 8], "dtype": "bf16"}, {"shape": [8, 2], "dtype": "bf16"}]}
HEADER = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Duration(us)\n"
ROW = '"4,8;8,2",DT_BF16;DT_BF16,ND;ND,"4,2",DT_BF16,ND,3.5\n'

# What each command is given; `FILE` is a file it reads, sound where the test does not say otherwise.
READING = {
    "run": ("run", "FILE.sq"),
    "check": ("check", "FILE.sq"),
    "ir": ("ir", "FILE.sq"),
    "draw": ("draw", "FILE.sq"),
    "fmt": ("fmt", "FILE.sq"),
    "trace": ("trace", "FILE.csv", "--out", "-"),
    "lookup": ("lookup", "-d", "DB", "--operator", "FILE.json"),
    "run compiled": ("run", "FILE.json"),
    "run --workload": ("run", "good.sq", "--workload", "FILE.sq"),
    "run --instance": ("run", "good.sq", "--instance", "FILE.sq"),
    "run --trace": ("run", "replay.sq", "--trace", "FILE.csv"),
    "lookup -d": ("lookup", "-d", "FILE", "--op", "aten.mm.default"),
    "db list": ("db", "list", "FILE"),
    "db check": ("db", "check", "FILE"),
    "rfc -d": ("rfc", "-d", "FILE"),
}
SHOWING = {
    "version": ("--version",),
    "help": ("--help",),
    "help of a command": ("lookup", "-h"),
    "run": ("run", "good.sq"),
    "run --json": ("run", "good.sq", "--json"),
    "check": ("check", "good.sq"),
    "ir": ("ir", "good.sq"),
    "ir --schema": ("ir", "--schema"),
    "draw": ("draw", "good.sq"),
    "draw --out -": ("draw", "good.sq", "--out", "-"),
    "fmt": ("fmt", "loose.sq"),
    "trace": ("trace", "good.csv", "--out", "-"),
    "lookup": ("lookup", "-d", "DB", "--operator", "good.json"),
    "lookup --explain": ("lookup", "-d", "DB", "--operator", "good.json", "--explain"),
    "db list": ("db", "list", "."),
    "db check": ("db", "check", "DB"),
    "db demo": ("db", "demo", "--out", "demo"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one good file of each kind, which is also the current one."""
    (tmp_path / "good.sq").write_text(PROGRAM)
    (tmp_path / "loose.sq").write_text(PROGRAM.replace("run desk (2)", "run   desk  (2)"))
    (tmp_path / "replay.sq").write_text(PROGRAM.replace("batch(3); }", 'batch(3); trace "good.csv"; }'))
    (tmp_path / "good.csv").write_text(TRACE)
    (tmp_path / "good.json").write_text(json.dumps(OPERATOR))
    (tmp_path / "DB").mkdir()
    (tmp_path / "DB" / "op_mapping.yaml").write_text("operator_mappings: {aten.mm.default: {kernel_type: MatMulV2}}\n")
    (tmp_path / "DB" / "MatMulV2.csv").write_text(HEADER + ROW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_missing_file_is_exit_2_everywhere(castq: Any, home: Any, words: Any) -> None:
    ran = castq(*(word.replace("FILE", "missing") for word in words))
    assert (ran.code, ran.out) == (2, "")
    assert "missing" in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_an_unreadable_file_is_exit_2_everywhere(castq: Any, home: Any, words: Any) -> None:
    word = next(word for word in words if "FILE" in word)
    path = home / word.replace("FILE", "locked")
    path.mkdir() if word == "FILE" else path.write_text(PROGRAM)
    path.chmod(0)
    ran = castq(*(word.replace("FILE", "locked") for word in words))
    path.chmod(0o700)
    assert (ran.code, ran.out) == (2, "")
    assert "locked" in ran.err
    assert len(ran.err.splitlines()) == 1


READING_TEXT = {name: words for name, words in READING.items() if words[-1] != "FILE" and "--op" not in words}


@pytest.mark.parametrize("words", READING_TEXT.values(), ids=READING_TEXT)
def test_bytes_that_are_no_text_are_a_short_error(castq: Any, home: Any, words: Any) -> None:
    word = next(word for word in words if "FILE" in word)
    (home / word.replace("FILE", "bytes")).write_bytes(b"\xff\xfe\x00run")
    ran = castq(*(word.replace("FILE", "bytes") for word in words))
    assert (ran.code in (1, 2), ran.out) == (True, "")
    assert "UTF-8" in ran.err
    assert len(ran.err.splitlines()) == 1


def shell(home: Path, words: tuple[str, ...], redirect: str) -> subprocess.CompletedProcess[str]:
    command = " ".join([f"'{sys.executable}'", "-m", "castq", *words, redirect])
    return subprocess.run(["bash", "-c", command], cwd=home, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", SHOWING.values(), ids=SHOWING)
def test_a_full_output_is_one_line_and_exit_1(home: Any, words: Any) -> None:
    ran = shell(home, words, ">/dev/full")
    assert ran.returncode == 1
    assert re.fullmatch(r"(.* requests over .*\n)?castq: .*cannot be written: No space left on device\n", ran.stderr)


@pytest.mark.parametrize("words", SHOWING.values(), ids=SHOWING)
def test_a_closed_output_is_one_line_and_exit_1(home: Any, words: Any) -> None:
    ran = shell(home, words, ">&-")
    assert (ran.returncode, ran.stderr) == (1, "castq: standard output: cannot be written: it is closed\n")
    assert not (home / "demo").exists(), "noticed before anything is done"


def test_a_reader_that_has_gone_is_no_traceback(home: Any) -> None:
    ran = shell(home, ("ir", "--schema"), "| true")
    assert ran.stderr == ""


@pytest.mark.parametrize("redirect", ["2>&-", "<&-", "2>&- <&-"])
def test_other_closed_streams_do_no_harm(home: Any, redirect: Any) -> None:
    ran = shell(home, ("run", "good.sq", "--dump", "out"), redirect)
    assert ran.returncode == 0
    assert ran.stdout.startswith("ended at 12")
    assert (home / "out" / "stay.csv").read_text().startswith("time,session")


def test_a_closed_input_is_named(home: Any) -> None:
    ran = shell(home, ("run", "-"), "<&-")
    assert (ran.returncode, ran.stderr) == (2, "castq: standard input: cannot be read: it is closed\n")


@pytest.mark.parametrize("command", ["run", "check", "ir", "draw"])
def test_a_program_from_standard_input(castq: Any, home: Any, command: Any) -> None:
    piped = castq(command, "-", stdin=PROGRAM)
    assert piped.code == 0
    assert piped.out.replace("standard input", "good.sq") == castq(command, "good.sq").out


def test_a_compiled_program_from_standard_input(castq: Any, home: Any) -> None:
    compiled = castq("ir", "good.sq").out
    assert castq("run", "-", "--json", stdin=compiled).out == castq("run", "good.sq", "--json").out


def test_standard_input_is_given_once(castq: Any, home: Any) -> None:
    ran = castq("run", "-", "--workload", "-", stdin=PROGRAM)
    assert ran.code == 2
    assert "not both" in ran.err


def test_fmt_of_standard_input(castq: Any, home: Any) -> None:
    loose = (home / "loose.sq").read_text()
    assert castq("fmt", "-", stdin=loose).out == PROGRAM
    assert castq("fmt", "-", stdin=PROGRAM).out == PROGRAM, "also where nothing changes"
    checked = castq("fmt", "--check", "-", stdin=loose)
    assert (checked.code, checked.out) == (1, "standard input: would change\n")


def test_a_trace_through_pipes(castq: Any, home: Any) -> None:
    ran = castq("trace", "-", "--out", "-", stdin="\ufeff" + TRACE)
    assert ran.out == "session,turn,new,out,think\n1,1,374,44,0.000000\n"
    assert ran.err == "standard output: 1 requests over 0 s\n"


@pytest.mark.parametrize("kind", ["link", "mode", "hard link"])
def test_fmt_keeps_what_a_file_is(castq: Any, home: Any, kind: Any) -> None:
    file = home / "loose.sq"
    other = home / "other.sq"
    if kind == "link":
        other.symlink_to(file)
    elif kind == "hard link":
        os.link(file, other)
    file.chmod(0o755)
    assert castq("fmt", str(other if kind == "link" else file)).code == 0
    assert file.read_text() == PROGRAM
    assert file.stat().st_mode & 0o777 == 0o755
    if kind != "mode":
        assert (other.is_symlink(), other.samefile(file)) == (kind == "link", True)


def test_draw_writes_through_a_link_and_to_a_device(castq: Any, home: Any) -> None:
    (home / "link.svg").symlink_to("there.svg")
    assert castq("draw", "good.sq", "--out", "link.svg").code == 0
    assert (home / "there.svg").read_text() == castq("draw", "good.sq", "--out", "-").out
    assert castq("draw", "good.sq", "--out", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("words", [("draw", "good.sq", "--out"), ("trace", "good.csv", "--out")])
def test_a_file_that_cannot_be_written_is_exit_1(castq: Any, home: Any, words: Any) -> None:
    ran = castq(*words, str(home / "none" / "file"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"castq: {home / 'none' / 'file'}: cannot be written: No such file or directory\n"


STEERING = "\x1b[31mred\x07\n\u202eback\x9b"


def test_names_cannot_steer_a_terminal(castq: Any, home: Any) -> None:
    (home / "good.json").write_text(json.dumps([{**OPERATOR, "op": STEERING}] * 2))
    for more in ((), ("--explain",), ("--json",)):
        ran = castq("lookup", "-d", "DB", "--operator", "good.json", *more)
        assert ran.code == 3
        assert all(line.replace("\t", "").isprintable() for line in ran.out.splitlines())
    assert (
        json.loads(castq("lookup", "-d", "DB", "--operator", "good.json", "--json").out)[0]["operator"]["op"]
        == STEERING
    )
    ran = castq("lookup", "-d", "DB", "--op", STEERING)
    assert ran.out.count("\n") == 1


def test_arguments_that_are_no_text_are_shown_all_the_same(home: Any) -> None:
    ran = shell(home, ("lookup", "-d", "DB", "--op", "$'a\\xffb'", "--json"), "")
    assert (ran.returncode, ran.stderr) == (3, "")
    assert json.loads(ran.stdout)["answered"] is False


def test_a_picture_of_any_names_is_xml(castq: Any, home: Any) -> None:
    compiled = castq("ir", "good.sq").out.replace('"desk"', json.dumps("a\u001b<&\u0000b"))
    ran = castq("draw", "-", stdin=compiled)
    if ran.code == 0:  # else such a name is refused when the program is read
        assert ElementTree.fromstring(ran.out).tag.endswith("svg")
        assert "\\x1b" in ran.out
    else:
        assert "Traceback" not in ran.err


def test_json_is_valid_whatever_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_json({"a": [float("nan"), float("inf"), 1.5], "b": "\x1b\x9b\ud800"})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [None, None, 1.5], "b": "\x1b\x9b\ud800"}
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Größe 模型", "Größe 模型"), ("a\tb\n", "a\\tb\\n"), ("\x1b\x9b", "\\x1b\\x9b"), ("\ud800", "\\ud800")],
)
def test_printable(text: Any, shown: Any) -> None:
    assert printable(text) == shown


def test_tables_in_a_pipe_have_a_line_a_row_and_no_padding(castq: Any, home: Any) -> None:
    for line in castq("run", "good.sq").out.splitlines():
        assert "  " not in line
        assert line == line.rstrip()
    head, row = castq("db", "list", ".").out.splitlines()
    assert head.split("\t") == ["database", "format"]
    assert row.split("\t")[0].endswith("DB")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("db",),
        ("db", "list"),
        ("db", "check"),
        ("db", "demo"),
        *[(name,) for name in ("lookup", "rfc", "run", "check", "ir", "fmt", "draw", "trace")],
    ],
)
def test_h_is_help_everywhere(castq: Any, words: Any) -> None:
    assert castq(*words, "-h").out == castq(*words, "--help").out
    if len(words) == (2 if words[:1] == ("db",) else 1):
        assert "Exit code 0" in castq(*words, "-h").out


def test_completion_is_offered(castq: Any) -> None:
    assert "--install-completion" in castq("--help").out


def test_an_unknown_option_may_be_an_input_of_the_program(castq: Any, home: Any) -> None:
    for words, hint in ((("--rate", "3"), "-- --rate 3"), (("--rate=3",), "-- --rate=3"), (("--rate",), "-- --rate")):
        ran = castq("run", "good.sq", *words)
        assert ran.code == 2
        assert ran.err.rstrip().endswith(f"inputs of the program stand at the end: {hint}")
    assert "--seed" in castq("run", "good.sq", "--sead", "3").err, "it may also be a slip"


def test_ir_takes_a_program_or_prints_the_schema(castq: Any) -> None:
    assert json.loads(castq("ir", "--schema").out)["title"]
    ran = castq("ir")
    assert (ran.code, "--schema" in ran.err) == (2, True)
