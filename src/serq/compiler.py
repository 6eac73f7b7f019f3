"""Source text to a checked program in the interchange form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Final

from serq import ir
from serq.checks.check import check
from serq.errors import SerqError, Source, fail
from serq.lowering.build import Build
from serq.lowering.seed import lower_single_file
from serq.lowering.settings import Settings, finish, given_settings
from serq.lowering.split import lower_split
from serq.syntax import tree
from serq.syntax.parse import is_deployment, parse_deployment, parse_single_file, parse_workload, start_of

__all__ = ["compile"]

_SHIPPED: Final = Path(__file__).resolve().parent  # holds lib/, the definitions that come with castq


def compile(
    path: str | Path | None = None,
    *,
    source: str | None = None,
    workload: str | Path | None = None,
    workload_source: str | None = None,
    sets: Mapping[str, float | int | str] | None = None,
    defs: Mapping[str, str] | None = None,
    seed: int | None = None,
    horizon: float | None = None,
    warmup: float | None = None,
    arrivals: int | None = None,
    trace: str | None = None,
    to_run: bool = True,
) -> ir.Program:
    """The checked program of a file (`path`) or text (`source`), with its workload when it is a deployment.

    `sets` gives inputs (single-file edition: constants) by name, `defs` bodies of definitions, `trace` another trace
    file; the other arguments are the settings of the run.  With `to_run` off a missing horizon is no error.  Raises
    `SerqError` when the program cannot be used, `OSError` when a file cannot be read, `TypeError` for an argument that
    is no number or text, and `OverflowError` for a seed or a number of arrivals out of range.
    """
    settings = replace(
        given_settings(horizon, warmup, seed, arrivals, trace), folder=_folder(path, workload), to_run=to_run
    )
    try:
        return _compile(path, source, workload, workload_source, _inputs(sets), _bodies(defs), settings)
    except RecursionError:
        raise SerqError("syntax", "the program is nested too deeply") from None


def _compile(
    path: str | Path | None,
    text: str | None,
    workload: str | Path | None,
    workload_text: str | None,
    sets: dict[str, float | int | str],
    defs: dict[str, str],
    settings: Settings,
) -> ir.Program:
    program = _source(path, text, "deployment")
    if program is None:
        raise SerqError("structure", "no program was given", hint="pass a path or 'source'")
    other = _source(workload, workload_text, "workload")
    if not is_deployment(program):
        if other is not None:
            hint = "a deployment is 'fn main() { … }'; a single-file program holds its own 'workload { … }'"
            message = "a workload file belongs to a deployment, and this program is none"
            raise fail("structure", message, start_of(program), hint=hint)
        root = Path(path).resolve() if path is not None else None
        items = _items(program, root)
        with _about(program.name):
            return _checked(*lower_single_file(items, settings, sets, defs))

    deployment = parse_deployment(program)
    if other is None:
        at = next((item.at for item in deployment.items if isinstance(item, tree.ServerDecl)), deployment.at)
        hint = "give it with '--workload FILE', from Python with 'workload=' or 'workload_source='"
        raise fail("structure", "a deployment runs with a workload file, and none was given", at, hint=hint)
    file = parse_workload(other)
    with _about(f"{program.name} + {other.name}"):
        return _checked(*lower_split(deployment, file, settings, sets, defs))


def _checked(program: ir.Program, build: Build, settings: Settings) -> ir.Program:
    check(program, build)
    return finish(program, settings)


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Errors without a position are about the whole program: they carry its name."""
    try:
        yield
    except SerqError as error:
        for one in error.errors:
            if one.file is None:
                one.file = name
        raise


def _inputs(sets: Mapping[str, float | int | str] | None) -> dict[str, float | int | str]:
    """Inputs by name as plain numbers or text."""
    found: dict[str, float | int | str] = {}
    for name, value in (sets or {}).items():
        if isinstance(value, bool) or not isinstance(value, Real | str):
            raise TypeError(f"the input {name!r} is a number or the text of one, not {value!r}")
        found[name] = value if isinstance(value, str) else float(value)
    return found


def _bodies(defs: Mapping[str, str] | None) -> dict[str, str]:
    for name, body in (defs or {}).items():
        if not isinstance(body, str):
            raise TypeError(f"the definition {name!r} is the text of an expression, not {body!r}")
    return dict(defs or {})


def _folder(path: str | Path | None, workload: str | Path | None) -> str:
    """Where a relative trace is read from: beside the workload, or the current directory for text."""
    home = workload if workload is not None else path
    return "" if home is None else str(Path(home).resolve().parent)


def _source(path: str | Path | None, text: str | None, name: str) -> Source | None:
    if path is not None and text is not None:
        raise SerqError("structure", f"the {name} was given both as a file and as text")
    if text is not None:
        return Source.of(name, text)
    if path is None:
        return None
    return Source.of(Path(path).name, _read(Path(path)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SerqError("syntax", "the file is not UTF-8 text", file=path.name) from None


def _items(program: Source, root: Path | None) -> tuple[tree.Item, ...]:
    """The items of a single-file program with those of the files it uses, each file once."""
    seen: set[Path | None] = {root} if root else set()
    return _with_included(parse_single_file(program), program.name, root, root.parent if root else None, seen)


def _with_included(
    parsed: tree.SingleFileProgram, name: str, file: Path | None, folder: Path | None, seen: set[Path | None]
) -> tuple[tree.Item, ...]:
    found: list[tree.Item] = []
    for item in parsed.items:
        if not isinstance(item, tree.UseDecl):
            found.append(item)
            continue
        if file is None or folder is None:
            raise fail("structure", "'use' needs a program in a file: its path is relative to it", item.at)
        path, home = _used(item, name, file, folder)
        if path in seen:
            continue
        seen.add(path)
        inner = Source.of(path.relative_to(home).as_posix(), _read(path))
        found.extend(_with_included(parse_single_file(inner), inner.name, path, home, seen))
    return tuple(found)


def _used(item: tree.UseDecl, name: str, file: Path, folder: Path) -> tuple[Path, Path]:
    """The file that a `use` names and the folder it must stay in: the program's own first, then the one of castq."""
    path = (file.parent / item.path).resolve()
    if not path.is_relative_to(folder):
        raise fail("structure", f"{item.path!r} lies outside the program's folder", item.at)
    if path.is_file():
        return path, folder
    shipped = (_SHIPPED / item.path).resolve()
    if item.path.startswith("lib/") and shipped.is_relative_to(_SHIPPED / "lib") and shipped.is_file():
        return shipped, _SHIPPED
    raise fail("structure", f"no file {item.path!r} beside {name!r}", item.at)
