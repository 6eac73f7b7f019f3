"""From what a user writes to one database: a folder, a name of the installed GPU tables, or `ROOT::name`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tensor_cast.errors import InvalidValueError, UnknownNameError, nearest
from tensor_cast.performance_model.profiling_database.database import MAPPING_FILE, DatabaseName
from tensor_cast.performance_model.profiling_database.mapping.op_mapping import SHIPPED_MAPPINGS

__all__ = ["find_databases", "locate", "shipped_mapping"]

_SHOWN: Final = 8
_LEVELS: Final = ("system", "framework", "version")


def locate(where: str | Path, *, own_mapping: bool = False) -> DatabaseName | Path:
    """The one database that `where` names: a GPU database, or the folder of any other.

    A folder may also hold one database somewhere below it; a name may leave out its last parts where one database is
    left, and its case does not matter.  With a mapping of the caller's own any folder is a database.  Raises
    InvalidValueError or UnknownNameError that lists what was found instead.
    """
    text = str(where)
    if "::" in text:
        root, _, name = text.rpartition("::")
        return _named(name, Path(root))
    path = Path(where)
    if path.is_dir():
        return _in_folder(path, own_mapping)
    if path.exists():
        raise InvalidValueError(f"{path}: is a file; expected the folder that holds {MAPPING_FILE}")
    if 1 <= len(text.split("/")) <= 3 and not text.startswith((".", "/", "~")) and "\\" not in text:
        return _installed(text, path)
    raise InvalidValueError(f"{path}: no such folder; expected a folder that holds {MAPPING_FILE}")


def _in_folder(path: Path, own_mapping: bool) -> DatabaseName | Path:
    if (path / MAPPING_FILE).is_file():
        return _with_mapping(path)
    if _is_shipped(path):
        return path
    found = list(find_databases(path))
    if len(found) == 1:
        return _place(found[0])
    if found:
        raise InvalidValueError(f"{path}: holds {len(found)} databases; name one of them: {_listed(found)}")
    if own_mapping or any(path.glob("*.csv")):
        return path
    inside = sorted(f"{item.name}/" if item.is_dir() else item.name for item in path.iterdir())
    if not inside:
        raise InvalidValueError(f"{path}: is empty; expected {MAPPING_FILE} and one CSV per kernel")
    shown = ", ".join(inside[:_SHOWN]) + (f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else "")
    raise InvalidValueError(f"{path}: holds no database; expected {MAPPING_FILE} in it or below it, found {shown}")


def _with_mapping(path: Path) -> DatabaseName | Path:
    """The folder itself, or the one GPU database of a root that has a mapping of its own."""
    from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import find_gpu_databases

    if any(path.glob("*.csv")):
        return path
    found = [name for name in find_gpu_databases(path) if name.path.parent == path]
    if len(found) > 1:
        raise InvalidValueError(f"{path}: holds {len(found)} databases; name one of them: {_listed(found)}")
    return found[0] if found else path


def _is_shipped(path: Path) -> bool:
    return shipped_mapping(path).is_file() and any(path.glob("*.csv"))


def _place(name: DatabaseName) -> DatabaseName | Path:
    from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import FORMAT

    return name if name.format == FORMAT else name.path


def _installed(text: str, path: Path) -> DatabaseName | Path:
    """A database of the installed package."""
    from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import PACKAGE, installed_database

    parts = text.split("/")
    if find_spec(PACKAGE) is None and len(parts) < 3:
        raise InvalidValueError(f"{path}: no such folder; expected a folder that holds {MAPPING_FILE}")
    spelled = installed_database(parts) if len(parts) == 3 else None
    return spelled or _named(text, None)


def _named(text: str, root: Path | None) -> DatabaseName | Path:
    """A database of a root by its name or the first parts of it."""
    from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import find_gpu_databases

    if root is not None and not root.is_dir():
        raise InvalidValueError(f"{root}: is not a folder; expected <system>/<family>/<framework>/<version> below it")
    known = list(find_gpu_databases(None) if root is None else find_databases(root))
    parts = text.strip("/").split("/")
    named = [(name, str(name).split("/")[: len(parts)]) for name in known]
    found = [name for name, own in named if own == parts]
    found = found or [name for name, own in named if _folded(own) == _folded(parts)]
    if len(found) == 1:
        return _place(found[0])
    if found:
        raise InvalidValueError(f"{text!r} stands for {len(found)} databases; name one of them: {_listed(found)}")
    raise UnknownNameError(_unknown(text, parts, known, root))


def _folded(parts: Sequence[str]) -> list[str]:
    return [part.casefold() for part in parts]


def _unknown(text: str, parts: Sequence[str], known: Sequence[DatabaseName], root: Path | None) -> str:
    """Which part of a name is unknown, and what is known in its place."""
    place = "the installed GPU tables" if root is None else str(root)
    left = list(known)
    for level, part, kind in zip(range(3), parts, _LEVELS, strict=False):
        values = sorted({str(name).split("/")[level] for name in left})
        same = [name for name in left if str(name).split("/")[level].casefold() == part.casefold()]
        if not same:
            within = f" of {'/'.join(parts[:level])}" if level else ""
            expected = f"; known: {', '.join(values)}" if values else "; nothing is there"
            return f"no database {text!r} in {place}: no {kind} {part!r}{within}{nearest(part, values)}{expected}"
        left = same
    return f"no database {text!r} in {place}: expected system/framework/version"


def _listed(found: Sequence[DatabaseName]) -> str:
    more = f" and {len(found) - _SHOWN} more (castq db list)" if len(found) > _SHOWN else ""
    return ", ".join(_spellings(found[:_SHOWN])) + more


def _spellings(found: Sequence[DatabaseName]) -> Iterator[str]:
    for name in found:
        yield name.spelling


def shipped_mapping(path: Path) -> Path:
    """Where the mapping shipped for a folder `device/framework/version` stands, if there is one."""
    return SHIPPED_MAPPINGS / path.parent.parent.name / path.parent.name / path.name / MAPPING_FILE


def find_databases(root: Path | None = None) -> Iterator[DatabaseName]:
    """Every database under `root`, or those of the installed `gpu` package when `root` is None."""
    from tensor_cast.performance_model.profiling_database.columns.aiconfigurator import find_gpu_databases

    if root is None:
        if find_spec("aiconfigurator_core") is not None:
            yield from find_gpu_databases(None)
        return
    if not root.is_dir():
        raise InvalidValueError(f"{root}: is not a folder")
    gpu = list(find_gpu_databases(root))
    roots = {name.path.parent for name in gpu}
    for mapping in sorted(root.rglob(MAPPING_FILE)):
        folder = mapping.parent
        if folder not in roots:
            parts = (*folder.resolve().parts, "")[-4:-1]
            yield DatabaseName(parts[0], parts[1], parts[2], folder, "ascend_csv", str(folder))
    yield from gpu
