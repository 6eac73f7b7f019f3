"""`castq run`, `check`, `ir`, `fmt`, `draw` and `trace`: serving programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from tensor_cast.errors import InvalidValueError

if TYPE_CHECKING:
    from serq import ir as ir_nodes
    from serq.report import Report

__all__ = [
    "CHECK_EXAMPLE",
    "DRAW_EXAMPLE",
    "FMT_EXAMPLE",
    "IR_EXAMPLE",
    "RUN_EXAMPLE",
    "TRACE_EXAMPLE",
    "check",
    "draw",
    "fmt",
    "ir",
    "run",
    "trace",
]

RUN_EXAMPLE: Final = "Example: castq run examples/serving/chat.sq --seed 3 -- --rate 2"
CHECK_EXAMPLE: Final = "Example: castq check examples/serving/chat.sq"
IR_EXAMPLE: Final = "Example: castq ir examples/serving/chat.sq > chat.json && castq run chat.json"
FMT_EXAMPLE: Final = "Example: castq fmt --check examples/serving/chat.sq"
DRAW_EXAMPLE: Final = "Example: castq draw examples/serving/chat.sq --out chat.svg"
TRACE_EXAMPLE: Final = "Example: castq trace azure-llm-conv-2023.csv --limit 1000 --out conv.csv"
_REFUSED: Final = 1
_STATISTICS: Final = ("count", "mean", "ci", "cv2", "p99")

File = Annotated[str, typer.Argument(metavar="FILE", help="The program: source text, or a compiled .json.")]
ProgramInputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- --NAME VALUE]...", help="Inputs of the program, after two dashes."),
]
Workload = Annotated[
    str | None, typer.Option(metavar="FILE", help="The workload of a deployment that does not hold its own.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of every random stream.")]
Horizon = Annotated[float | None, typer.Option(help="End of the run, in the program's time unit.")]
Warmup = Annotated[float | None, typer.Option(help="Start of the measured time.")]
Arrivals = Annotated[int | None, typer.Option(help="Sessions to let in; the run ends when they have left.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set an input; repeat for several.")
]
Defs = Annotated[
    list[str] | None, typer.Option("--def", metavar="NAME=EXPR", help="Replace a definition; repeat for several.")
]
Trace = Annotated[str | None, typer.Option(metavar="FILE", help="Replay another trace.")]
InstanceFile = Annotated[
    str | None, typer.Option("--instance", metavar="FILE", help="Inputs and settings of one case: lets and one run.")
]
InlineTrace = Annotated[bool, typer.Option("--inline-trace", help="Carry the rows of the trace along.")]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON schema of compiled programs and exit.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Programs, workloads or libraries.")]
CheckOnly = Annotated[bool, typer.Option("--check", help="Change nothing; say which files would change.")]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write the picture here instead of printing it.")]
Source = Annotated[str, typer.Argument(metavar="FILE", help="The published trace.")]
TraceOut = Annotated[str, typer.Option("--out", metavar="FILE", help="The trace file to write.")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N requests.")]
Dump = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Write samples, gauges and iterations as CSV files into a new folder."),
]
StepByStep = Annotated[
    bool, typer.Option("--step-by-step", help="Take every event and iteration by itself, also where many are alike.")
]
Samples = Annotated[bool, typer.Option("--samples", help="Keep every sample and change point, also in the JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def run(
    file: File,
    inputs: ProgramInputs = None,
    workload: Workload = None,
    seed: Seed = None,
    horizon: Horizon = None,
    warmup: Warmup = None,
    arrivals: Arrivals = None,
    sets: Sets = None,
    defs: Defs = None,
    instance: InstanceFile = None,
    trace: Trace = None,
    dump: Dump = None,
    step_by_step: StepByStep = False,
    samples: Samples = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a serving program and report.

    Deterministic: the same program, inputs and seed give the same report.  Ctrl-C ends the run and reports what it has,
    marked partial.  Exit code 0 when the run came to its end; 1 if the program was refused, the run failed or a session
    is stuck; 2 for a wrong call; 130 after Ctrl-C.
    """
    from castq.commands import show

    settings = {"seed": seed, "horizon": horizon, "warmup": warmup, "arrivals": arrivals, "trace": trace}
    program = _compiled(file, workload, _Given(inputs, sets, defs), settings, instance)
    report = _simulated(program, dumped=dump is not None, samples=samples, step_by_step=step_by_step)
    if dump is not None:
        _dump(report, dump)
    if as_json:
        show.print_json(report.to_json(samples=samples))
    else:
        _show(report)
    if report.partial:
        raise typer.Exit(130)
    if any(pool.stuck for pool in report.pools):
        raise typer.Exit(_REFUSED)


def check(
    file: File,
    inputs: ProgramInputs = None,
    workload: Workload = None,
    sets: Sets = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Read and check a serving program without running it, and say what it declares.

    Exit code 0 if it is sound, 1 if it is refused, 2 for a wrong call.
    """
    from castq.commands import show

    sound = _compiled(file, workload, _Given(inputs, sets, defs), {"to_run": False})
    facts: dict[str, Any] = {
        "stages": [f"{_member(stage.name, stage.index)}: {stage.kind}" for stage in sound.stages],
        "pools": [f"{_member(pool.name, pool.index)}: {pool.cap:g} units" for pool in sound.pools],
        "arrivals": sound.arrival.kind,
        "observes": list(sound.observes),
        "gauges": [gauge.name for gauge in sound.gauges],
        "claims": [claim.name for claim in sound.claims],
        "run": {"horizon": sound.horizon, "warmup": sound.warmup, "seed": sound.seed, "arrivals": sound.arrivals},
    }
    if as_json:
        show.print_json({"program": file, **facts})
    else:
        show.print_tree(f"{file} is sound", facts)


def ir(
    file: File,
    inputs: ProgramInputs = None,
    workload: Workload = None,
    seed: Seed = None,
    horizon: Horizon = None,
    warmup: Warmup = None,
    arrivals: Arrivals = None,
    sets: Sets = None,
    defs: Defs = None,
    instance: InstanceFile = None,
    trace: Trace = None,
    inline_trace: InlineTrace = False,
    schema: Schema = False,
) -> None:
    """Print the compiled program: closed, versioned JSON that `castq run` accepts and simulates alike.

    Exit code 0, or 1 if the program is refused, 2 for a wrong call.
    """
    import json

    from serq import ir_json
    from serq.traces import with_trace

    if schema:
        typer.echo(json.dumps(ir_json.schema(), indent=2))
        return
    settings = {"seed": seed, "horizon": horizon, "warmup": warmup, "arrivals": arrivals, "trace": trace}
    program = _compiled(file, workload, _Given(inputs, sets, defs), settings, instance)
    with _refusals():
        typer.echo(ir_json.to_json(with_trace(program) if inline_trace else program, indent=1))


def fmt(files: Files, check_only: CheckOnly = False) -> None:
    """Lay serving programs out in the one way: two blanks of indentation, one blank around operators.

    Files are rewritten in place, each whole or not at all; comments and line breaks stay.  Exit code 0; 1 if a file is
    refused or, with `--check`, would change; 2 for a wrong call.
    """
    from serq.syntax.fmt import format_source

    changed = 0
    for name in files:
        with _refusals(name):
            text = Path(name).read_text(encoding="utf-8")
            laid_out = format_source(text, Path(name).name)
            if laid_out == text:
                continue
            changed += 1
            if not check_only:
                _replace(Path(name), laid_out)
        typer.echo(f"{name}: {'would change' if check_only else 'changed'}")
    if changed and check_only:
        raise typer.Exit(_REFUSED)


def draw(
    file: File,
    inputs: ProgramInputs = None,
    workload: Workload = None,
    sets: Sets = None,
    defs: Defs = None,
    out: Out = None,
) -> None:
    """Draw the deployment as SVG: stages in the order a session meets them, and the pools it holds meanwhile.

    Exit code 0, or 1 if the program is refused or the file cannot be written, 2 for a wrong call.
    """
    from serq.drawing import draw_svg

    picture = draw_svg(_compiled(file, workload, _Given(inputs, sets, defs), {"to_run": False}))
    if out is None:
        typer.echo(picture, nl=False)
        return
    with _refusals(out):
        _replace(Path(out), picture)


def trace(source: Source, out: TraceOut, limit: Limit = None) -> None:
    """Turn a published request trace into a trace file that serving programs replay: one session a request.

    Reads the Azure LLM inference traces (CSV) and the Mooncake traces (JSON lines).  The think time of a session is the
    time of its arrival, as examples/serving/arrivals.sq uses it.  Exit code 0; 1 if a file cannot be read or written.
    """
    from serq.trace_import import read_requests, trace_text

    with _refusals(source):
        requests = read_requests(source, limit)
        _replace(Path(out), trace_text(requests))
    typer.echo(f"{out}: {len(requests)} requests over {requests[-1][0]:.6g} s")


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new text, never a part."""
    import os

    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _refusals(file: str = "") -> Iterator[None]:
    """Errors of programs, traces, runs and files become their text and exit code 1."""
    from serq.errors import SerqError
    from serq.sim.context import RunError

    try:
        yield
    except SerqError as error:
        typer.echo("\n\n".join(str(one) for one in error.errors), err=True)
        raise typer.Exit(_REFUSED) from None
    except RunError as error:
        typer.echo(f"castq: {error}" if error.place is None else str(error), err=True)
        raise typer.Exit(_REFUSED) from None
    except UnicodeDecodeError:
        typer.echo(f"castq: {file}: the file is not UTF-8 text", err=True)
        raise typer.Exit(_REFUSED) from None
    except OSError as error:
        typer.echo(f"castq: {error.filename or file}: {error.strerror}", err=True)
        raise typer.Exit(_REFUSED) from None
    except OverflowError as error:
        raise InvalidValueError(str(error)) from None


class _Given(NamedTuple):
    """Inputs after the two dashes, `--set` and `--def`, as they stand on the command line."""

    inputs: Sequence[str] | None
    sets: Sequence[str] | None
    defs: Sequence[str] | None


def _compiled(
    file: str, workload: str | None, given: _Given, settings: dict[str, Any], instance: str | None = None
) -> ir_nodes.Program:
    """The program of source text, or of the interchange form where the file is called `.json`."""
    from serq.compiler import compile as compile_program

    sets: dict[str, Any] = {**_pairs(given.sets, "--set"), **_inputs(given.inputs)}
    defs = _pairs(given.defs, "--def")
    with _refusals(file):
        if file.endswith(".json"):
            if sets or defs or workload or instance:
                raise InvalidValueError(f"{file}: a compiled program takes no inputs, definitions or workload")
            return _read_ir(Path(file), settings)
        if instance is not None:
            from serq.instance import read_instance

            case = read_instance(instance)
            sets = {**case.sets, **sets}
            own = {name: getattr(case.settings, name) for name in settings}
            settings = {name: own[name] if value is None else value for name, value in settings.items()}
        return compile_program(Path(file), workload=workload, sets=sets, defs=defs, **settings)


def _read_ir(path: Path, settings: dict[str, Any]) -> ir_nodes.Program:
    from dataclasses import replace

    from serq import ir_json
    from serq.lowering.settings import finish, given_settings

    program = ir_json.from_json(path.read_text(encoding="utf-8"))
    if program.trace is not None and settings.get("trace"):
        program = replace(program, trace=replace(program.trace, path=settings["trace"], sessions=None))
    elif program.trace is not None:
        program = replace(program, trace=replace(program.trace, folder=str(path.resolve().parent)))
    names = ("horizon", "warmup", "seed", "arrivals")
    own = {name: getattr(program, name) for name in names}
    given = {name: settings[name] for name in names if settings.get(name) is not None}
    return finish(program, given_settings(**{**own, **given}))


def _simulated(program: ir_nodes.Program, *, dumped: bool, samples: bool, step_by_step: bool) -> Report:
    from castq.commands import show
    from serq.runner import run as run_program

    with _refusals(), show.progress("simulating") as bar:
        watch = None if bar is None else lambda done: bar("simulating", done, 1.0)
        return run_program(
            program, iterations=dumped, samples=samples or dumped, watch=watch, step_by_step=step_by_step
        )


def _dump(report: Report, folder: str) -> None:
    from serq.dump import dump_csv

    with _refusals(folder):
        dump_csv(report, Path(folder))


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


def _show(report: Report) -> None:
    from castq.commands import show

    state = "interrupted, partial" if report.partial else "ended"
    typer.echo(
        f"{state} at {report.end:.6g} (measured from {report.warmup:.6g}, seed {report.seed}): {report.arrivals} "
        f"sessions arrived, {report.ended} ended, {report.turns} turns, {report.events} events"
    )
    _table(show, "client", ("name", *_STATISTICS), list(report.client.values()))
    _table(show, "observed", ("name", *_STATISTICS), list(report.observes.values()))
    within = max((row.p99_within for row in (*report.client.values(), *report.observes.values())), default=0.0)
    if within:
        typer.echo(f"p99 of many samples: within {within:.2%}; --samples keeps them all")
    _table(show, "gauges", ("name", "mean", "ci", "min", "max"), list(report.gauges.values()))
    stages = ("utilization", "throughput", "mean_number", "mean_wait", "mean_service", "iterations", "mean_itl")
    _table(show, "stages", ("name", *stages), report.stages)
    pools = ("mean_used", "mean_cached", "mean_queue", "mean_wait", "admissions", "preemptions", "rejected", "stuck")
    _table(show, "pools", ("name", *pools), report.pools)
    _table(show, "claims", ("name", "result", "checked", "failures", "first", "note"), report.claims)


def _table(show: Any, title: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
    if not rows:
        return
    typer.echo()
    head = (title, *columns[1:])
    cells = [[_cell(row, column) for column in columns] for row in rows]
    kept = [i for i in range(len(head)) if i == 0 or any(row[i] for row in cells)]
    show.print_table(
        [head[i].replace("_", " ") for i in kept],
        [[row[i] for i in kept] for row in cells],
        right=[head[i].replace("_", " ") for i in kept if i and head[i] not in ("result", "note")],
        fold=False,
    )


def _cell(row: Any, column: str) -> str:
    value = getattr(row, column)
    if column == "name":
        return _member(value, getattr(row, "index", None))
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float | int) else str(value)


def _member(name: str, index: int | None) -> str:
    return name if index is None else f"{name}[{index}]"
