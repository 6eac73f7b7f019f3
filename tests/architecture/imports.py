"""Which module of `src` imports which, read from the source: in-function and type-only imports count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["SOURCE", "circles", "import_graph"]

SOURCE = Path(__file__).parents[2] / "src"


def import_graph() -> Mapping[str, frozenset[str]]:
    """Module by module the modules of `src` that it imports."""
    files = {_dotted(path): path for path in SOURCE.rglob("*.py")}
    return {name: frozenset(_imported(path, files) - {name}) for name, path in files.items()}


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    return {name for name in _names(path, known) if name in known}


def _names(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Groups of modules that reach each other: what is left when modules without imports are taken away, both ways."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        bare = {name for name, targets in left.items() if not targets or name not in imported}
        if not bare:
            break
        left = {name: targets - bare for name, targets in left.items() if name not in bare}
    groups: list[list[str]] = []
    while left:
        start = min(left)
        group = {name for name in _reached(start, left) if start in _reached(name, left)} | {start}
        if len(group) > 1:
            groups.append(sorted(group))
        left = {name: targets - group for name, targets in left.items() if name not in group}
    return groups


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
