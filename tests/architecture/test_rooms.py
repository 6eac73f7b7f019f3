"""The walls of the house: no circles, no arrows back up, no import over a wall (docs/architecture.md)."""

from __future__ import annotations

import pytest

from architecture.imports import circles, import_graph

DATABASE = "tensor_cast.performance_model.profiling_database"
# From the ground up; a room may import itself and the rooms below it.  A module belongs to the longest name that fits;
# names with a space before them share the floor of the name above.  A package itself (`=`) is its `__init__` alone.
FLOORS = {
    "tensor_cast": (
        "tensor_cast.errors",
        "tensor_cast.arithmetic",
        "tensor_cast.dtypes",
        "tensor_cast.parallel",
        "tensor_cast.files",
        "tensor_cast.devices",
        "tensor_cast.operators",
        f"{DATABASE}.reasons",
        f"{DATABASE}.evidence",
        f"{DATABASE}.data_source",
        f"{DATABASE}.mapping",
        f"{DATABASE}.tables",
        f"{DATABASE}.database",
        f"{DATABASE}.geometry",
        f" {DATABASE}.interpolation_math",
        f" {DATABASE}.interpolation_index",
        f"{DATABASE}.exact",
        f"{DATABASE}.paths",
        f"{DATABASE}.columns",
        f"{DATABASE}.locating",
        f"{DATABASE}.catalogue",
        f"{DATABASE}.dispatch",
        f"{DATABASE}.known_facts",
        f"{DATABASE}.candidates",
        f"{DATABASE}.diagnostics",
        f"{DATABASE}.many",
        f"{DATABASE}.engine",
        f"{DATABASE}.earlier_names",
        f"{DATABASE}.profiling_data_source",
        f"{DATABASE}.interpolating_data_source",
        f"={DATABASE}",
        "tensor_cast.demo",
        "=tensor_cast.performance_model",
        "tensor_cast.performance_model.base",
        "tensor_cast.performance_model.forward_time",
        "tensor_cast.performance_model.empirical",
        "=tensor_cast",
    ),
    "serq": (
        "serq.errors",
        "serq.json_text",
        "serq.lib",
        "serq.ir",
        "serq.syntax",
        "serq.lowering",
        "serq.checks",
        "serq.instance",
        "serq.compiler",
        "serq.sim",
        "serq.report",
        "serq.traces",
        "serq.runner",
        "=serq",
    ),
    "castq": (
        "=castq",
        "castq.exit_codes",
        "castq.streams",
        "castq.operator_text",
        "castq.repeated_rows",
        "castq.databases",
        "castq.shapes",
        "castq.catalogue",
        "castq.ask",
        "castq.rfc",
        "castq.commands",
        "castq.cli",
        "castq.__main__",
    ),
}
GRAPH = import_graph()


def floors_of(package: str) -> dict[str, int]:
    """The floor of every name of a package."""
    found, floor = {}, -1
    for name in FLOORS[package]:
        floor += not name.startswith(" ")
        found[name.strip()] = floor
    return found


FLOOR = {package: floors_of(package) for package in FLOORS}


def floor_of(module: str) -> int:
    """The floor a module stands on."""
    known = FLOOR[module.partition(".")[0]]
    if f"={module}" in known:
        return known[f"={module}"]
    found = [name for name in known if module == name or module.startswith(f"{name}.")]
    assert found, f"{module} has no room yet: name one in {__name__} and in docs/architecture.md"
    return known[max(found, key=len)]


def test_there_is_no_circle_outside_the_simulator() -> None:
    inside = {name: targets for name, targets in GRAPH.items() if not name.startswith("serq.sim")}
    assert circles(inside) == []


def test_a_circle_is_found_where_there_is_one() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a"), "e": frozenset()}
    assert circles(graph) == [["a", "b", "c"]]


@pytest.mark.parametrize("package", FLOORS)
def test_no_arrow_goes_back_up(package: str) -> None:
    upward = [
        f"{module} -> {target}"
        for module, targets in GRAPH.items()
        for target in targets
        if module.partition(".")[0] == target.partition(".")[0] == package and floor_of(target) > floor_of(module)
    ]
    assert sorted(upward) == []


@pytest.mark.parametrize(
    ("package", "others"), [("tensor_cast", ("serq", "castq")), ("serq", ("tensor_cast", "castq"))]
)
def test_the_packages_below_know_nothing_of_their_neighbours(package: str, others: tuple[str, ...]) -> None:
    over = [
        f"{module} -> {target}"
        for module, targets in GRAPH.items()
        for target in targets
        if module.partition(".")[0] == package and target.partition(".")[0] in others
    ]
    assert sorted(over) == []


def test_only_the_command_line_imports_the_commands() -> None:
    users = {m for m, targets in GRAPH.items() if any(t.startswith("castq.commands") for t in targets)}
    assert {m for m in users if not m.startswith("castq.commands")} == {"castq.cli"}
