"""`castq examples`: the examples that come with castq, to try and to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = ["EXAMPLE", "examples"]

EXAMPLE: Final = "Example: castq examples --out examples && castq run examples/serving/chat.sq"

Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="New folder to copy them to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def examples(out: Out = None, as_json: AsJson = False) -> None:
    """List the examples that come with castq, or copy them to a new folder.

    Exit code 0 on success, 2 where the folder exists already, 1 where it cannot be written.
    """
    from castq.commands import show
    from tensor_cast.files.writing import new_folder

    home = _home()
    names = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if _is_example(path))
    if out is not None:
        with new_folder(out) as folder:
            for name in names:
                folder.write_text(name, (home / name).read_text(encoding="utf-8"))
            folder.publish()
    if as_json:
        show.print_json({"folder": None if out is None else str(out), "files": names})
    elif out is None:
        show.say_lines("\n".join(names))
    else:
        show.say(f"{len(names)} files in {out}")


def _is_example(path: Path) -> bool:
    return path.is_file() and path.suffix in (".py", ".sq", ".csv", ".yaml")


def _home() -> Path:
    """The folder of the installed package, or of the checkout."""
    installed = Path(__file__).parents[1] / "examples"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples"
