"""Serving programs as a command line gives them: a file or standard input, with inputs, definitions and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from castq.exit_codes import ExitCode
from castq.streams import STANDARD, label, read_text
from tensor_cast.errors import InvalidValueError

if TYPE_CHECKING:
    from serq import ir as ir_nodes

__all__ = ["Given", "compiled", "refusals"]


@contextmanager
def refusals() -> Iterator[None]:
    """Errors of programs, traces and runs become their text and exit code 1, or 2 where a file cannot be read."""
    from castq.commands import show
    from serq.errors import RunError, SerqError

    try:
        yield
    except RunError as error:
        show.say(f"castq: {error}" if error.place is None else str(error), error=True)
        raise typer.Exit(ExitCode.FAILED) from None
    except SerqError as error:
        show.say_lines("\n\n".join(str(one) for one in error.errors), error=True)
        unreadable = isinstance(error.__cause__, OSError | UnicodeDecodeError)
        raise typer.Exit(ExitCode.MISUSE if unreadable else ExitCode.FAILED) from None
    except OverflowError as error:
        raise InvalidValueError(str(error)) from None


class Given(NamedTuple):
    """Inputs after the two dashes, `--set` and `--def`, as they stand on the command line."""

    inputs: Sequence[str] | None
    sets: Sequence[str] | None
    defs: Sequence[str] | None


def compiled(
    file: str, workload: str | None, given: Given, settings: dict[str, Any], instance: str | None = None
) -> ir_nodes.Program:
    """The program of source text, or of the interchange form: a file called `.json`, or standard input that is JSON."""
    from serq.compiler import compile as compile_program

    sets: dict[str, Any] = {**_pairs(given.sets, "--set"), **_inputs(given.inputs)}
    defs = _pairs(given.defs, "--def")
    if file == workload == STANDARD:
        raise InvalidValueError("standard input can be the program or the workload, not both")
    piped = read_text(STANDARD) if file == STANDARD else None
    with refusals():
        if file.endswith(".json") or (piped is not None and piped.lstrip().startswith("{")):
            if sets or defs or workload or instance:
                raise InvalidValueError(f"{label(file)}: a compiled program takes no inputs, definitions or workload")
            folder = Path.cwd() if piped is not None else Path(file).resolve().parent
            return _read_ir(read_text(file) if piped is None else piped, folder, settings)
        if instance is not None:
            from serq.instance import read_instance

            case = read_instance(instance)
            sets = {**case.sets, **sets}
            own = {name: getattr(case.settings, name) for name in settings}
            settings = {name: own[name] if value is None else value for name, value in settings.items()}
        text: dict[str, Any] = {"path": file} if piped is None else {"source": piped}
        text |= {"workload": workload} if workload != STANDARD else {"workload_source": read_text(STANDARD)}
        return compile_program(**text, sets=sets, defs=defs, **settings)


def _read_ir(text: str, folder: Path, settings: dict[str, Any]) -> ir_nodes.Program:
    from serq.ir import json_form
    from serq.lowering.settings import finish, given_settings

    program = json_form.from_json(text)
    if program.trace is not None and settings.get("trace"):
        program = replace(program, trace=replace(program.trace, path=settings["trace"], sessions=None))
    elif program.trace is not None:
        program = replace(program, trace=replace(program.trace, folder=str(folder)))
    names = ("horizon", "warmup", "seed", "arrivals")
    own = {name: getattr(program, name) for name in names}
    given = {name: settings[name] for name in names if settings.get(name) is not None}
    return finish(program, given_settings(**{**own, **given}))


def _pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, given, value = text.partition("=")
        if not given or not name:
            raise InvalidValueError(f"{option} {text!r}: expected NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _inputs(words: Sequence[str] | None) -> dict[str, str]:
    """`--name value` and `--name=value`, as they stand after the two dashes."""
    found: dict[str, str] = {}
    left = list(words or ())
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            raise InvalidValueError(f"input {word!r}: expected --NAME VALUE after the two dashes")
        name, given, value = word[2:].partition("=")
        if not given and not left:
            raise InvalidValueError(f"input --{name} has no value")
        found[name.replace("-", "_")] = value if given else left.pop(0)
    return found
