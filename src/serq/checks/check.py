"""What is checked once a program stands in the interchange form as a whole."""

from __future__ import annotations

from serq import ir
from serq.checks.hidden import HiddenFlow, refuse_decisions
from serq.checks.progress import check_progress
from serq.checks.signature import check_assigned
from serq.checks.stale import check_stale
from serq.checks.whole import check_whole
from serq.errors import SerqError, fail
from serq.lowering.build import Build

__all__ = ["check"]


def check(program: ir.Program, build: Build) -> None:
    """Raises the first error found, which carries the others."""
    starts = tuple(start for start in (program.init, program.turn, program.session) if start is not None)
    with build.keeping():
        _releases(build)
    with build.keeping():
        _legs(build)
    if not build.single_file:
        with build.keeping():
            _unleased(program, build)
    with build.keeping():
        check_stale(program, build.headers)
    with build.keeping():
        _hidden(program, build)
    if not build.single_file:
        with build.keeping():
            check_whole(program, starts, build.whole_amounts(), build.place)
        with build.keeping():
            _assigned(program, build)
    with build.keeping():
        check_progress(program, starts, build.place)
    build.stop()


def _releases(build: Build) -> None:
    for pool, at in build.releases:
        if pool.name not in build.leased:
            message = f"nothing can be released here: no hold of {pool.name!r} encloses this, and nothing leases it"
            raise fail("structure", message, at)


def _unleased(program: ir.Program, build: Build) -> None:
    """A pool whose growth ends leases has some."""
    for pool in build.pools:
        if program.pools[pool.base].preempt.kind == "leases" and pool.name not in build.leased:
            message = f"'preempt leases' has nothing to take: no hold leases {pool.name!r}"
            raise fail("structure", message, pool.at)


def _legs(build: Build) -> None:
    if build.fork_at is not None and not build.joins:
        raise fail("structure", "legs are started and never joined", build.fork_at, hint="add 'join;'")


def _hidden(program: ir.Program, build: Build) -> None:
    if not build.hidden:
        return
    flow = HiddenFlow(program, frozenset(build.hidden), strict=not build.single_file, place=build.place)
    try:
        if build.single_file:
            flow.follow(program.session)
        elif build.server_block is not None:
            flow.follow(build.server_block, build.sends)
    except SerqError as error:
        build.errors.append(error)
    refuse_decisions(flow, build.decisions)


def _assigned(program: ir.Program, build: Build) -> None:
    if build.server_block is not None:
        check_assigned(program, build.server_block, frozenset(build.costs), build.reply_slots)
