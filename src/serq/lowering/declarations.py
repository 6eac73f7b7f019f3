"""Constants, definitions and the names a program declares, before anything is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from serq.errors import Place, Source, closest, fail
from serq.ir.moments import MOMENTS
from serq.ir.words import AGGREGATES, NO_DEFINITION
from serq.lowering.build import Build, Definition, Scope
from serq.lowering.expressions import constant, expression_names
from serq.syntax import tree
from serq.syntax.parse import parse_expression
from serq.syntax.walk import nested

__all__ = [
    "Inputs",
    "add_definitions",
    "add_lets",
    "assigned_names",
    "called_names",
    "check_definition_order",
    "constant_scope",
    "observed_names",
    "setting",
]

_OPTIONS = ("seed", "horizon", "warmup", "arrivals", "trace", "set", "def", "json", "dump", "workload", "instance")

Number = float | int | str


def constant_scope(build: Build, side: str = "single") -> Scope:
    return Scope(build, MOMENTS["constant"], side)


def setting(name: str, value: Number, build: Build) -> float:
    """The number an override stands for: a number, or the text of a constant expression."""
    if isinstance(value, int | float):
        return float(value)
    return constant(
        parse_expression(Source.of(f"override {name}", value)), constant_scope(build), f"the value of {name!r}"
    )


class Inputs:
    """The values the caller gives by name: inputs in the split edition, constants in the single-file edition."""

    def __init__(self, sets: Mapping[str, Number]) -> None:
        self.sets = dict(sets)
        self.known: dict[str, Place] = {}

    def finish(self) -> None:
        """Refuse values nothing asked for."""
        for name in self.sets:
            if name not in self.known:
                hint = closest(name, self.known) or (f"the inputs are {', '.join(self.known)}" if self.known else None)
                raise fail("override", f"the program has no input called {name!r}", None, hint=hint)

    def value(self, let: tree.LetDecl, build: Build, side: str) -> float:
        """The value of a constant, after any override."""
        call = let.value
        if isinstance(call, tree.CallExpr) and call.name == "args.number":
            return self._input(call, build, side)
        if build.single_file and let.name in self.sets:
            self.known[let.name] = let.name_at
            return setting(let.name, self.sets[let.name], build)
        if build.single_file:
            self.known[let.name] = let.name_at
        return constant(let.value, constant_scope(build, side), f"the constant {let.name!r}")

    def reaches(self, let: tree.LetDecl, build: Build) -> bool:
        """Does a value the caller gave for an input decide this constant?"""
        for one in expression_names(let.value):
            given = isinstance(one, tree.Text) and one.value in self.sets
            if not build.single_file and (given or (isinstance(one, tree.Path) and one.plain in build.overridden)):
                return True
        return False

    def _input(self, call: tree.CallExpr, build: Build, side: str) -> float:
        if build.single_file:
            raise fail(
                "call", "'args.number' belongs to the split edition", call.at, hint="override a 'let' by its name"
            )
        if "std/args" not in build.uses:
            raise fail("structure", "'args.number' needs 'use \"std/args\";'", call.at)
        if len(call.args) != 2 or not isinstance(call.args[0], tree.Text):
            raise fail("call", "'args.number' takes a name in quotes and a default", call.at)
        name = call.args[0].value
        if name in _OPTIONS:
            raise fail(
                "override", f"an input may not be called {name!r}: the runner has an option of this name", call.at
            )
        if name in self.known:
            raise fail("override", f"the input {name!r} is used twice", call.at)
        self.known[name] = call.at
        default = constant(call.args[1], constant_scope(build, side), "the default")
        return setting(name, self.sets[name], build) if name in self.sets else default


def add_lets(items: Iterable[tree.Item], build: Build, inputs: Inputs, side: str) -> None:
    """Evaluate the constants in order; of two with one name the later counts."""
    for item in items:
        if isinstance(item, tree.LetDecl):
            with build.keeping():
                _let(item, build, inputs, side)


def _let(let: tree.LetDecl, build: Build, inputs: Inputs, side: str) -> None:
    build.declare("constant", let.name, let.name_at)
    build.lets_of(side)[let.name] = inputs.value(let, build, side)
    if inputs.reaches(let, build):
        build.overridden.add(let.name)


def add_definitions(items: Iterable[tree.Item], build: Build, defs: Mapping[str, str], side: str) -> None:
    """Declare the definitions in order; a body calls only earlier ones."""
    for item in items:
        if isinstance(item, tree.DefDecl):
            with build.keeping():
                _define(item, build, defs, side)


def _define(decl: tree.DefDecl, build: Build, defs: Mapping[str, str], side: str) -> None:
    taken = NO_DEFINITION - AGGREGATES if build.single_file else NO_DEFINITION
    for word in (decl.name, *decl.params):
        if word in taken:
            raise fail("structure", f"{word!r} is a word of the language", decl.at, code="E-reserved-word")
    if len(set(decl.params)) < len(decl.params):
        raise fail("structure", f"{decl.name!r} has two parameters of one name", decl.at)
    known = build.defs_of(side)
    if decl.name in known or build.taken.get(decl.name, ("definition",))[0] != "definition":
        build.declare("definition", decl.name, decl.at)
    build.taken.setdefault(decl.name, ("definition", decl.at))
    if decl.name in defs:
        if decl.value is None:
            raise fail("override", f"{decl.name!r} is a definition of statements and cannot be replaced", None)
        body = parse_expression(Source.of(f"override {decl.name}", defs[decl.name]))
        decl = tree.DefDecl(decl.at, decl.name, decl.params, body, (), decl.braced)
    for name, at in _calls(decl):
        if name == decl.name:
            raise fail("call", f"{name!r} calls itself; a definition is written out where it is called", at)
    known[decl.name] = Definition(decl, len(known))


def check_definition_order(build: Build, side: str) -> None:
    """Refuse a body that calls a definition declared after it."""
    known = build.defs_of(side)
    for definition in known.values():
        for name, at in _calls(definition.decl):
            if name in known and known[name].order > definition.order:
                message = f"{name!r} is declared after {definition.decl.name!r}, which calls it"
                build.errors.append(fail("call", message, at))


def _calls(decl: tree.DefDecl) -> Iterator[tuple[str, Place]]:
    if decl.value is not None:
        for one in expression_names(decl.value):
            if isinstance(one, tree.CallExpr):
                yield one.name, one.at
    for statement in nested(decl.body):
        if isinstance(statement, tree.CallStatement):
            yield statement.name, statement.at
        for expr in _expressions(statement):
            for one in expression_names(expr):
                if isinstance(one, tree.CallExpr):
                    yield one.name, one.at


def _expressions(statement: tree.Statement) -> Iterator[tree.Expression]:
    kinds = (tree.CallExpr, tree.BinaryOp, tree.UnaryOp, tree.Conditional, tree.Aggregate, tree.Draw)
    for field in statement.__slots__:
        value = getattr(statement, field)
        values = value if isinstance(value, tuple) else (value,)
        yield from (one for one in values if isinstance(one, kinds))


def assigned_names(body: tree.Body) -> Iterator[tuple[str, Place]]:
    """The attributes a body assigns, in the order of the text."""
    for one in nested(body):
        if isinstance(one, tree.SetStatement):
            if one.word != "observe":
                yield one.name, one.name_at
        elif isinstance(one, tree.CostRecord | tree.ChooseStatement):
            yield one.name, one.name_at
        elif isinstance(one, tree.NameStatement):
            yield one.name, one.at
        elif isinstance(one, tree.HoldStatement):
            yield from ((name, at) for name, at, _ in one.bindings)


def called_names(body: tree.Body, build: Build) -> Iterator[tuple[str, Place]]:
    """The attributes a body assigns, with those of the statement definitions it calls."""
    yield from assigned_names(body)
    for one in nested(body):
        if isinstance(one, tree.CallStatement) and one.name in build.defs:
            inner = build.defs[one.name].decl.body
            yield from ((name, one.at) for name, _ in called_names(inner, build))


def observed_names(body: tree.Body) -> Iterator[tuple[str, Place]]:
    """The observations a body records, in the order of the text."""
    for one in nested(body):
        if isinstance(one, tree.SetStatement) and one.word == "observe":
            yield one.name, one.name_at
