"""Runs, flows and transfers to the interchange form."""

from __future__ import annotations

from collections.abc import Sequence

from serq import ir
from serq.errors import Place, fail
from serq.lowering.build import Amount, Resource, Scope
from serq.lowering.connectors import check_flow_stage, copy_run
from serq.lowering.costs import number, spend
from serq.lowering.expressions import lower, lower_number, resolve
from serq.lowering.refs import find_resource
from serq.syntax import tree

__all__ = ["copy_content", "lower_run", "lower_transfer"]

_Placed = list[tuple[Resource, ir.Ref]]


def lower_run(statement: tree.RunStatement, scope: Scope) -> Sequence[ir.Stmt]:
    """`run`, `prefill`, `decode` and `tool`."""
    placed = _stages(statement.word, statement.stages, statement.member, statement.mode, scope, statement.at)
    at = statement.stages[0].at if statement.stages else statement.at
    for resource, _ in placed:
        _check_mode(statement, resource, scope, at)
    value = lower(statement.amount, scope)
    resources = [resource for resource, _ in placed]
    if statement.word == "tool":
        number(value, statement.amount.at, "the time of 'tool'")
    else:
        spend(value, resources, scope, at)
    _check_amount(value.expr, resources[0], at)
    if resources[0].engine is not None and not scope.build.single_file:
        scope.build.amounts.append(Amount(value.expr, f"what a run on {resources[0].name!r} computes", at))
    growing = None
    if statement.growing is not None:
        pool, growing = resolve(statement.growing, scope, "pool")
        if not any(pool.name in frame.pools for frame in scope.holds):
            raise fail("structure", f"'growing' needs an enclosing hold of {pool.name!r}", statement.growing.at)
    latency = _latency(statement.latency, placed[0][0], scope)
    share = _share(statement.share, placed, scope, at)
    refs = tuple(ref for _, ref in placed)
    return (ir.Run(refs, value.expr, statement.mode, growing, share, latency),)


def _check_amount(expr: ir.Expr, stage: Resource, at: Place) -> None:
    if isinstance(expr, ir.Num) and not expr.value >= 0:
        raise fail("value", f"a negative amount of work on {stage.name!r}", at)


def _latency(written: tree.Expression | None, stage: Resource, scope: Scope) -> ir.Expr | None:
    if written is None:
        return stage.latency
    latency = lower_number(written, scope, "a latency")
    if isinstance(latency, ir.Num) and not latency.value >= 0:
        raise fail("value", "a latency is not negative", written.at)
    return latency


def _stages(
    word: str,
    paths: tuple[tree.Path, ...],
    member: tree.Expression | None,
    mode: str,
    scope: Scope,
    at: Place,
) -> _Placed:
    """The stages a statement names, or the one its word implies."""
    if not paths:
        paths = (_implied(word, member, mode, scope, at),)
    placed = [resolve(path, scope, "stage") for path in paths]
    for resource, _ in placed:
        resource.ran = True
    names = [resource.name for resource, _ in placed]
    for name in names:
        if names.count(name) > 1:
            raise fail("structure", f"a run names {name!r} at most once", paths[0].at)
    return placed


def _implied(word: str, member: tree.Expression | None, mode: str, scope: Scope, at: Place) -> tree.Path:
    if word == "run":
        if scope.queue is None:
            raise fail("syntax", "'run' names the stage it runs on", at)
        return tree.Path(at, (tree.Part(at, scope.queue.name),))
    path = tree.Path(at, (tree.Part(at, word, member),))
    if mode != "plain" and member is None and find_resource(path, scope) is None:
        steps = [stage for stage in scope.build.stages if stage.engine is not None]
        if len(steps) != 1:
            hint = f"write '{word} on STAGE (tokens);'"
            raise fail("structure", f"{word!r} does not say which of {len(steps)} step stages is meant", at, hint=hint)
        return tree.Path(at, (tree.Part(at, steps[0].name),))
    return path


def _check_mode(statement: tree.RunStatement, stage: Resource, scope: Scope, at: Place) -> None:
    engine = stage.engine
    if statement.mode == "plain":
        if engine is not None:
            hint = f"write 'run {stage.name} prefill (tokens)' or 'decode'"
            raise fail("structure", f"{stage.name!r} is a step engine: a run says 'prefill' or 'decode'", at, hint=hint)
        return
    if engine is None:
        raise fail("structure", f"{statement.mode!r} needs a step engine; {stage.name!r} is none", at)
    if not scope.build.single_file and (scope.queue is None or scope.queue.engine is not engine):
        hint = f"write '{engine.name} (input, output);'"
        message = f"{statement.mode!r} on {stage.name!r} stands only in the entries of its queue"
        raise fail("structure", message, at, hint=hint)


def _share(written: str | None, placed: _Placed, scope: Scope, at: Place) -> str | None:
    build = scope.build
    if len(placed) == 1:
        return written
    share = written or build.share
    if share is None:
        hint = "write 'share maxmin;'" if build.single_file else "write '…, share = share.maxmin)'"
        raise fail("structure", "a flow over several stages needs a sharing policy", at, hint=hint)
    if not build.single_file and "std/share" not in build.uses:
        raise fail("structure", "'share' needs 'use \"std/share\";'", at)
    for resource, _ in placed:
        check_flow_stage(resource, at)
    build.share = build.share or share
    return share


def lower_transfer(statement: tree.TransferStatement, scope: Scope) -> Sequence[ir.Stmt]:
    """The run of a transfer, then the content counts at the target and the source gives its own up."""
    declared = _declared_copy(statement, scope)
    if declared is not None:
        return (declared, *copy_content(statement.source, statement.target, statement.load, scope))
    placed = _stages("transfer", statement.stages, statement.member, "plain", scope, statement.at)
    amount = lower_number(statement.amount, scope, "the work of a transfer")
    at = statement.stages[0].at if statement.stages else statement.at
    _check_amount(amount, placed[0][0], at)
    share = _share(None, placed, scope, at)
    refs = tuple(ref for _, ref in placed)
    run = ir.Run(refs, amount, share=share, latency=placed[0][0].latency)
    return (run, *copy_content(statement.source, statement.target, statement.load, scope))


def _declared_copy(statement: tree.TransferStatement, scope: Scope) -> ir.Stmt | None:
    """A transfer that names no stage, in an entry that a transfer declaration lets read another queue."""
    copy = scope.build.copies.get(scope.queue.name) if scope.queue is not None else None
    if copy is None or statement.stages or statement.member is not None or scope.source is None:
        return None
    amount = lower_number(statement.amount, scope, "the work of a transfer")
    return copy_run(copy, amount, scope)


def copy_content(source: tree.Path, target: tree.Path, load: tree.Expression, scope: Scope) -> Sequence[ir.Stmt]:
    """`from P to Q (n)`: the content is loaded into the hold of Q, then P is released."""
    pool, ref = resolve(target, scope, "pool")
    if not any(pool.name in frame.pools for frame in scope.holds):
        raise fail("structure", f"a transfer needs an enclosing hold of {pool.name!r}", target.at)
    origin, origin_ref = resolve(source, scope, "pool")
    if not any(origin.name in frame.pools for frame in scope.holds):
        scope.build.releases.append((origin, source.at))
    loaded = lower_number(load, scope, "the amount loaded")
    if isinstance(loaded, ir.Num) and not loaded.value >= 0:
        raise fail("value", f"a negative amount loaded into {pool.name!r}", load.at)
    if not scope.build.single_file:
        scope.build.amounts.append(Amount(loaded, f"what is loaded into {pool.name!r}", load.at))
    return (ir.Load(ref, loaded), ir.Release(origin_ref))
