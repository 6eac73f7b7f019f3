"""The `castq` program."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from castq.commands import catalogue, db, lookup, rfc, serving
from tensor_cast.errors import CastqError

__all__ = ["app", "main"]

_MISUSE = 2
_INTERRUPTED = 130


class _Commands(TyperGroup):
    """Turns the errors of our own family into one line and exit code 2, and Ctrl-C into 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CastqError as error:
            typer.echo(f"castq: {error}", err=True)
            raise typer.Exit(_MISUSE) from None
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="How fast will this model serve this traffic on that accelerator, and how sure are you?",
    epilog="Start without any measurements: castq db demo --out demo",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from castq import __version__

        typer.echo(f"castq {__version__}")
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
app.command("rfc", epilog=rfc.EXAMPLE)(rfc.rfc)
app.command("run", epilog=serving.RUN_EXAMPLE)(serving.run)
app.command("check", epilog=serving.CHECK_EXAMPLE)(serving.check)
app.command("ir", epilog=serving.IR_EXAMPLE)(serving.ir)
app.command("fmt", epilog=serving.FMT_EXAMPLE)(serving.fmt)
app.command("draw", epilog=serving.DRAW_EXAMPLE)(serving.draw)
app.command("trace", epilog=serving.TRACE_EXAMPLE)(serving.trace)
app.add_typer(db.app, name="db")


def main() -> None:
    """Run the program; exit 0 on success, 2 on misuse, 130 on Ctrl-C, and what a command documents otherwise."""
    try:
        app(prog_name="castq")
    except CastqError as error:
        sys.stderr.write(f"castq: {error}\n")
        sys.exit(_MISUSE)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
