"""The `castq` program."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from castq.commands import catalogue, db, devices, examples, lookup, rfc, serving, shapes, trace
from castq.exit_codes import ExitCode
from castq.streams import printable, put, quiet
from tensor_cast.errors import CastqError, WriteError

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Turns the errors of our own family and of the system into one line, and Ctrl-C into exit code 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (CastqError, OSError) as error:
            raise typer.Exit(_told(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


class _ProgramCommand(TyperCommand):
    """A command on a serving program: an option it does not know may be an input of the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter:
            raise
        except Exception as error:
            name = getattr(error, "option_name", "")
            if isinstance(name, str) and name.startswith("--"):
                self._add_hint(error, _after_dashes(name, given))
            raise

    @staticmethod
    def _add_hint(error: Any, words: str) -> None:
        error.message = f"{error.format_message()}; inputs of the program stand at the end: {words}"
        error.possibilities = None


def _after_dashes(name: str, given: list[str]) -> str:
    """How an unknown option would be given to the program, with its value as it was written."""
    at = next((i for i, word in enumerate(given) if word.partition("=")[0] == name), len(given))
    has_value = "=" not in "".join(given[at : at + 1]) and at + 1 < len(given) and not given[at + 1].startswith("-")
    return printable(" ".join(["--", *(given[at : at + 1 + has_value] or [name])]))


def _told(error: CastqError | OSError) -> int:
    """Say what went wrong in one line, and give the exit code: 1 where something could not be written, else 2."""
    if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough: nothing to tell
        quiet()
        return ExitCode.FAILED
    if isinstance(error, CastqError):
        text = str(error)
    elif error.filename is None:
        text = f"the output cannot be written: {error.strerror or error}"
    else:
        text = f"{error.filename}: {error.strerror}"
    with suppress(OSError):
        put(f"castq: {printable(text)}\n", error=True)
    unwritten = isinstance(error, OSError) and error.filename is None
    if unwritten:
        quiet()
    return ExitCode.FAILED if unwritten else ExitCode.MISUSE


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="How fast will this model serve this traffic on that accelerator, and how sure are you?",
    epilog="Start without any measurements: castq db demo --out demo",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from castq import __version__

        put(f"castq {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command("lookup", epilog=lookup.EXAMPLE)(lookup.lookup)
app.command("ops", epilog=catalogue.OPS_EXAMPLE)(catalogue.ops)
app.command("axes", epilog=catalogue.AXES_EXAMPLE)(catalogue.axes)
app.command("devices", epilog=devices.EXAMPLE)(devices.devices)
app.command("examples", epilog=examples.EXAMPLE)(examples.examples)
app.command("rfc", epilog=rfc.EXAMPLE)(rfc.rfc)
app.command("run", cls=_ProgramCommand, epilog=serving.RUN_EXAMPLE)(serving.run)
app.command("check", cls=_ProgramCommand, epilog=serving.CHECK_EXAMPLE)(serving.check)
app.command("ir", cls=_ProgramCommand, epilog=serving.IR_EXAMPLE)(serving.ir)
app.command("fmt", epilog=serving.FMT_EXAMPLE)(serving.fmt)
app.command("draw", cls=_ProgramCommand, epilog=serving.DRAW_EXAMPLE)(serving.draw)
app.command("trace", epilog=trace.EXAMPLE)(trace.trace)
app.add_typer(db.app, name="db")
app.add_typer(shapes.app, name="shapes")


def main() -> None:
    """Run the program.

    Exit code 0 on success, 1 where something could not be written, 2 for a wrong call or a missing file, 130 on Ctrl-C,
    and what a command documents otherwise.
    """
    if sys.stdout is None:
        _end(WriteError("standard output", "it is closed"))
    _keep_low_numbers()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="castq")
    except (CastqError, OSError) as error:
        _end(error)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _end(error: CastqError | OSError) -> NoReturn:
    sys.exit(_told(error))


def _keep_low_numbers() -> None:
    """Where standard input or error is closed, no file that is opened later shall take its place."""
    number = 0
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
