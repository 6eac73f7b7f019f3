"""The figures by which the structure is judged, beside their targets: `python tools/figures.py [--json]`.

Code lines are lines that hold code, without blank lines, comments, docstrings and imports.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src"
DATABASE: Final = SOURCE / "tensor_cast" / "performance_model" / "profiling_database"
sys.path.append(str(ROOT / "tests"))  # the graph of imports that the tests of the walls use

_NESTING: Final = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
_CITED: Final = re.compile(r"\b(?:facts|specification|rulings?|spec)(?:,? sections?)? \d|facts,? section|RFC \d+ facts")


@dataclass(frozen=True)
class Figure:
    """One figure: what it is today, its target, and whether it is met."""

    name: str
    today: str
    target: str
    met: bool


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py"))


def code_lines(path: Path) -> int:
    """Lines that hold code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and _is_text(node))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    with tokenize.open(path) as stream:
        tokens = [token for token in tokenize.generate_tokens(stream.readline) if token.type not in skipped]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - documented)


def _is_text(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def functions(paths: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Length in lines and deepest nesting of every function."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1, max(_depths(node.body, 0), default=0)


def _depths(body: Iterable[ast.stmt], depth: int) -> Iterator[int]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        inner = depth + isinstance(node, _NESTING)
        yield inner
        for field in ("body", "orelse", "finalbody"):
            children = getattr(node, field, [])
            chained = field == "orelse" and isinstance(node, ast.If) and len(children) == 1
            yield from _depths(children, depth if chained and isinstance(children[0], ast.If) else inner)
        for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
            yield from _depths(part.body, inner)


def any_uses(folder: Path) -> int:
    """How often `Any` stands for a type."""
    found = 0
    for path in files(folder):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
    return found


def kernel_names() -> list[str]:
    """Literals in code that name an Ascend kernel of a shipped mapping, those of the Phase 1 children left out."""
    mappings = [*DATABASE.joinpath("data").glob("ATLAS*/**/op_mapping.yaml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in mappings)
    known = set(re.findall(r"\b([A-Z][A-Za-z]+[A-Z0-9][A-Za-z0-9]*)\b", text)) - {"DT_BF16", "INT4", "INT8"}
    found = []
    for path in files(DATABASE):
        if path.name == "children.py":
            continue
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)
        ]
        found += [f"{path.name}:{node.lineno} {node.value!s}" for node in nodes if node.value in known]
    return found


def citations() -> list[str]:
    """Comments and docstrings that cite facts or rulings by number without a document of this repository."""
    found = []
    for path in files(SOURCE):
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if _CITED.search(line) and "docs/" not in line:
                found.append(f"{path.relative_to(SOURCE)}:{at}")
    return found


def visited_files() -> int:
    """Files of the packages that run while a new question is answered from a table that is loaded already."""
    from tensor_cast import InterpolatingDataSource, LeafOp, ProfilingDataSource
    from tensor_cast.demo import write_demo_database

    def product(m: int) -> LeafOp:
        return LeafOp.build("aten.mm.default", [((m, 5120), "bf16"), ((5120, 768), "bf16")])

    seen: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            seen.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as folder:
        [written] = write_demo_database(Path(folder), versions=("0.18",)).databases
        source = InterpolatingDataSource(ProfilingDataSource(written.path))
        source.query(product(100))
        sys.setprofile(watch)
        source.query(product(101))
        sys.setprofile(None)
    return len(seen)


def figures() -> list[Figure]:
    from architecture.imports import circles, import_graph

    graph = import_graph()
    inside = {name: targets for name, targets in graph.items() if name.startswith("serq.sim")}
    loops = circles(graph)
    back = sum(len(inside[name] & set(group)) for group in circles(inside) for name in group)
    core = [path for path in files(DATABASE) if "columns" not in path.parts]
    everything = files(SOURCE)
    lengths, depths = zip(*functions(everything), strict=True)
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in everything}
    largest, p95 = max(lines.values()), statistics.quantiles(lengths, n=20)[-1]
    size, uses, kernels, cited = (
        sum(map(code_lines, core)),
        any_uses(SOURCE / "tensor_cast"),
        kernel_names(),
        citations(),
    )
    visited = visited_files()
    return [
        Figure("circles, all imports counted", str(len(loops)), "0", not loops),
        Figure("imports inside circles of serq/sim", str(back), "0 (its own issue)", back == 0),
        Figure("RFC core, code lines", str(size), "< 3500", size < 3500),
        Figure("files that a warm lookup visits", str(visited), "<= 10", visited <= 10),
        Figure("`Any` in tensor_cast", str(uses), "< 60", uses < 60),
        Figure("deepest nesting", str(max(depths)), "3", max(depths) <= 3),
        Figure("names of Ascend kernels in code", str(len(kernels)), "0", not kernels),
        Figure("largest file", str(largest), "< 500", largest < 500),
        Figure("function length, 95th percentile", f"{p95:.0f}", "< 30", p95 < 30),
        Figure("citations without a document", str(len(cited)), "0", not cited),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--list", choices=("kernels", "citations"), help="where these are, instead of the figures")
    given = parser.parse_args()
    if given.list:
        sys.stdout.write("\n".join(kernel_names() if given.list == "kernels" else citations()) + "\n")
        return 0
    found = figures()
    if given.json:
        sys.stdout.write(json.dumps([vars(one) for one in found], indent=2) + "\n")
        return 0
    for one in found:
        sys.stdout.write(f"{one.name:38s}{one.today:>8s}   {one.target:20s}{'' if one.met else 'not met'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
