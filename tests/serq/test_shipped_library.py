"""`use "lib/..."` finds the definitions that come with castq, after the program's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

import serq
from serq.compiler import compile as compile_program
from serq.errors import SerqError

PROGRAM = """use "lib/{name}.sq";
stage npu : step {{ budget 64; cost 1 + {cost}; }}
workload {{ arrive batch (3); turn {{ set prompt = 3; set answer = 4; }} }}
session {{ turn; prefill on npu (prompt); decode on npu (answer); end; }}
run {{ horizon 1000; }}
"""


def duration(folder: Path, name: str, cost: str) -> float:
    path = folder / "program.sq"
    path.write_text(PROGRAM.format(name=name, cost=cost))
    return serq.run(compile_program(path)).end


@pytest.mark.parametrize(
    ("name", "cost"),
    [("rbln", "decode_rows(decoders)"), ("ascend", "aligned_tokens(tokens)"), ("vllm", "decoders")],
)
def test_the_libraries_that_come_with_castq_are_found(tmp_path: Path, name: str, cost: str) -> None:
    assert duration(tmp_path, name, cost) > 0


def test_a_file_of_the_program_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rbln.sq").write_text("def decode_rows(n) = 100;\n")
    program = tmp_path / "program.sq"
    program.write_text(PROGRAM.format(name="rbln", cost="decode_rows(decoders)"))
    first = serq.run(compile_program(program), iterations=True).iterations[:2]
    assert first[1].time - first[0].time == 101.0


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("lib/nothing.sq", "no file 'lib/nothing.sq' beside"),
        ("lib/../compiler.py", "no file 'lib/../compiler.py' beside"),
        ("../lib/rbln.sq", "lies outside the program's folder"),
    ],
)
def test_nothing_else_is_read(tmp_path: Path, path: str, words: str) -> None:
    program = tmp_path / "program.sq"
    program.write_text(PROGRAM.format(name="rbln", cost="1").replace("lib/rbln.sq", path))
    with pytest.raises(SerqError, match=words):
        compile_program(program)
