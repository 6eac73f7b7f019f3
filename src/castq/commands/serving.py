"""`castq run`, `check`, `ir`, `fmt` and `draw`: serving programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from castq.commands.programs import Given, compiled, refusals
from castq.exit_codes import ExitCode
from castq.streams import STANDARD, label, put, read_text, write_text
from tensor_cast.errors import InvalidValueError

if TYPE_CHECKING:
    from castq.shapes.watch import ShapeWatch
    from serq import ir as ir_nodes
    from serq.report.report import Report
    from tensor_cast.files.writing import NewFolder

__all__ = [
    "CHECK_EXAMPLE",
    "DRAW_EXAMPLE",
    "FMT_EXAMPLE",
    "IR_EXAMPLE",
    "RUN_EXAMPLE",
    "check",
    "draw",
    "fmt",
    "ir",
    "run",
]

RUN_EXAMPLE: Final = "Example: castq run examples/serving/chat.sq --seed 3 -- --rate 2"
CHECK_EXAMPLE: Final = "Example: castq check examples/serving/chat.sq"
IR_EXAMPLE: Final = "Example: castq ir examples/serving/chat.sq > chat.json && castq run chat.json"
FMT_EXAMPLE: Final = "Example: castq fmt --check examples/serving/chat.sq"
DRAW_EXAMPLE: Final = "Example: castq draw examples/serving/chat.sq --out chat.svg"
_STATISTICS: Final = ("count", "mean", "ci", "cv2", "p99", "max")
_UNMEASURED: Final = "-"

_FILE_HELP: Final = "The program: source text, or a compiled .json; - reads standard input."

File = Annotated[str, typer.Argument(metavar="FILE", help=_FILE_HELP)]
OptionalFile = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="The program: source text, or a compiled .json; - reads standard input."),
]
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
Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Programs, workloads or libraries; - lays out standard input.")
]
CheckOnly = Annotated[bool, typer.Option("--check", help="Change nothing; say which files would change.")]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write the picture here; - prints it, as without.")]
Dump = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Write samples, gauges and iterations as CSV files into a new folder."),
]
CheckShapes = Annotated[
    list[str] | None,
    typer.Option(metavar="[ENGINE=]SETTINGS", help="Check every step against a vendor's shapes; repeat for engines."),
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
    check_shapes: CheckShapes = None,
    step_by_step: StepByStep = False,
    samples: Samples = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a serving program and report.

    Deterministic: the same program, inputs and seed give the same report.  Ctrl-C ends the run and reports what it has,
    marked partial.  Exit code 0 when the run came to its end; 1 if the program was refused, the run failed, a session
    was stuck, every session was rejected or something could not be written; 2 for a wrong call or a missing file; 130
    after Ctrl-C.  With --check-shapes also 1 where a step breaks a rule of the vendor's; the run itself is the same.
    """
    from castq.commands import show

    settings = {"seed": seed, "horizon": horizon, "warmup": warmup, "arrivals": arrivals, "trace": trace}
    program = compiled(file, workload, Given(inputs, sets, defs), settings, instance)
    watch = _shape_watch(check_shapes, program)
    with _dump_folder(dump, program) as folder:
        report = _simulated(
            program, dumped=folder is not None, samples=samples, step_by_step=step_by_step, observer=watch
        )
        try:
            _print(report, watch, samples=samples, as_json=as_json)
        finally:  # a report that cannot be printed does not cost the dump, nor the other way round
            if folder is not None:
                _dump(report, folder)
    if report.partial:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if report.verdict.failed:
        show.say(f"castq: {report.verdict.text}", error=True)
        raise typer.Exit(ExitCode.FAILED)
    if watch is not None and watch.violations:
        raise typer.Exit(ExitCode.FAILED)


def _shape_watch(given: list[str] | None, program: ir_nodes.Program) -> ShapeWatch | None:
    if given is None:
        return None
    from castq.commands.checked_shapes import watch_of

    return watch_of(given, program)


def _print(report: Report, watch: ShapeWatch | None, *, samples: bool, as_json: bool) -> None:
    """The report, and what the shapes of its steps are where somebody asked."""
    from castq.commands import show

    if as_json:
        document = report.to_json(samples=samples)
        if watch is not None:
            from castq.commands.checked_shapes import watch_json

            document["shapes"] = watch_json(watch)
        show.print_json(document)
        return
    _show(report)
    if watch is not None:
        from castq.commands.checked_shapes import show_watch

        show_watch(watch)


def check(
    file: File,
    inputs: ProgramInputs = None,
    workload: Workload = None,
    sets: Sets = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Read and check a serving program without running it, and say what it declares.

    Exit code 0 if it is sound, 1 if it is refused, 2 for a wrong call or a missing file.
    """
    from castq.commands import show

    sound = compiled(file, workload, Given(inputs, sets, defs), {"to_run": False})
    shown: dict[str, Any] = {
        "stages": [f"{_member(stage.name, stage.index)}: {stage.kind}" for stage in sound.stages],
        "pools": [f"{_member(pool.name, pool.index)}: {pool.cap:g} units" for pool in sound.pools],
        "arrivals": sound.arrival.kind,
        "observes": list(sound.observes),
        "gauges": [gauge.name for gauge in sound.gauges],
        "claims": [claim.name for claim in sound.claims],
        "run": {"horizon": sound.horizon, "warmup": sound.warmup, "seed": sound.seed, "arrivals": sound.arrivals},
    }
    if as_json:
        show.print_json({"program": file, **shown})
    else:
        show.print_tree(f"{label(file)} is sound", shown)


def ir(
    file: OptionalFile = None,
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

    Exit code 0, or 1 if the program is refused, 2 for a wrong call or a missing file.
    """
    import json

    from serq.ir import json_form
    from serq.traces.replay import with_trace

    if schema:
        put(json.dumps(json_form.schema(), indent=2) + "\n")
        return
    if file is None:
        raise InvalidValueError("name a program to compile, or ask for the --schema")
    settings = {"seed": seed, "horizon": horizon, "warmup": warmup, "arrivals": arrivals, "trace": trace}
    program = compiled(file, workload, Given(inputs, sets, defs), settings, instance)
    with refusals():
        text = json_form.to_json(with_trace(program) if inline_trace else program, indent=1)
    write_text(STANDARD, text + "\n")


def fmt(files: Files, check_only: CheckOnly = False) -> None:
    """Lay serving programs out in the one way: two blanks of indentation, one blank around operators.

    Files are rewritten in place, each whole or not at all; comments and line breaks stay.  Exit code 0; 1 if a file is
    refused, cannot be written or, with `--check`, would change; 2 for a wrong call or a missing file.
    """
    from castq.commands import show
    from serq.syntax.fmt import format_source

    changed = 0
    for name in files:
        text = read_text(name).replace("\r\n", "\n")
        with refusals():
            laid_out = format_source(text, Path(name).name if name != STANDARD else label(name))
        changed += laid_out != text
        if name == STANDARD and not check_only:
            write_text(STANDARD, laid_out)
        elif laid_out != text:
            if not check_only:
                write_text(name, laid_out)
            show.say(f"{label(name)}: {'would change' if check_only else 'changed'}")
    if changed and check_only:
        raise typer.Exit(ExitCode.FAILED)


def draw(
    file: File,
    inputs: ProgramInputs = None,
    workload: Workload = None,
    sets: Sets = None,
    defs: Defs = None,
    out: Out = None,
) -> None:
    """Draw the deployment as SVG: stages in the order a session meets them, and the pools it holds meanwhile.

    Exit code 0, or 1 if the program is refused or the file cannot be written, 2 for a wrong call or a missing file.
    """
    from serq.report.drawing import draw_svg

    picture = draw_svg(compiled(file, workload, Given(inputs, sets, defs), {"to_run": False}))
    write_text(out, picture)


def _simulated(
    program: ir_nodes.Program, *, dumped: bool, samples: bool, step_by_step: bool, observer: ShapeWatch | None = None
) -> Report:
    from castq.commands import show
    from serq.runner import run as run_program

    with refusals(), show.progress("simulating") as bar:
        watch = None if bar is None else lambda done: bar("simulating", done, 1.0)
        return run_program(
            program,
            iterations=dumped,
            samples=samples or dumped,
            watch=watch,
            step_by_step=step_by_step,
            observer=observer,
        )


@contextmanager
def _dump_folder(path: str | None, program: ir_nodes.Program) -> Iterator[NewFolder | None]:
    """The folder of a dump, made before the run so that a run is not in vain; None where none is asked for."""
    if path is None:
        yield None
        return
    from castq.commands import show
    from serq.report.dump import dump_names
    from tensor_cast.files.writing import new_folder

    with refusals():
        renamed = dump_names(program)
    with new_folder(path) as folder:
        for name, file in renamed:
            show.say(f"castq: {name} goes to {file} of {path}", error=True)
        yield folder


def _dump(report: Report, folder: NewFolder) -> None:
    from serq.report.dump import dump_tables

    with refusals():
        for table in dump_tables(report):
            folder.write_csv(table.name, table.head, table.rows)
    folder.publish()


def _show(report: Report) -> None:
    from castq.commands import show
    from serq.report.report import TIME_UNIT

    state = "interrupted, partial" if report.partial else "ended"
    show.say(
        f"{state} at {report.end:.6g} (measured from {report.warmup:.6g}, seed {report.seed}): {report.arrivals} "
        f"sessions arrived, {report.ended} ended, {report.turns} turns, {report.events} events"
    )
    show.say(f"verdict: {report.verdict.text}")
    show.say(f"unit of time: {TIME_UNIT}")
    _table(show, "client", ("name", *_STATISTICS), list(report.client.values()))
    _table(show, "observed", ("name", *_STATISTICS), list(report.observes.values()))
    within = max((row.p99_within for row in (*report.client.values(), *report.observes.values())), default=0.0)
    if within:
        show.say(f"p99 of many samples: within {within:.2%}; --samples keeps them all")
    _table(show, "gauges", ("name", "mean", "ci", "min", "max"), list(report.gauges.values()))
    stages = ("utilization", "throughput", "mean_number", "mean_wait", "mean_service", "iterations")
    _table(show, "stages", ("name", *stages, "mean_itl", "itl_max"), report.stages)
    pools = ("mean_used", "mean_cached", "mean_queue", "mean_wait", "admissions", "preemptions", "rejected", "stuck")
    _table(show, "pools", ("name", *pools), report.pools)
    _table(show, "claims", ("name", "result", "checked", "failures", "first", "note"), report.claims)


def _table(show: Any, title: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
    if not rows:
        return
    put("\n")
    head = (title, *columns[1:])
    cells = [[_cell(row, column) for column in columns] for row in rows]
    kept = [i for i in range(len(head)) if i == 0 or any(row[i] != _UNMEASURED for row in cells)]
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
    if value is None or value != value:
        return _UNMEASURED
    return f"{value:.6g}" if isinstance(value, float | int) else str(value)


def _member(name: str, index: int | None) -> str:
    return name if index is None else f"{name}[{index}]"
