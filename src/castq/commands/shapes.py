"""`castq shapes`: which padded shape runs the work that an engine selects, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from castq.streams import STANDARD, read_text, write_text
from tensor_cast.errors import InvalidValueError

if TYPE_CHECKING:
    from castq.shapes.planned import Planner
    from castq.shapes.plans import StepsPlan
    from castq.shapes.settings_file import Engine
    from castq.shapes.traffic import Request

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Input shapes and padding: plan, suggest, examples."
)

Vendor = Annotated[
    str | None, typer.Option(metavar="NAME", help="ascend, rbln or vllm; the file's own vendor if left out.")
]
SettingsFile = Annotated[Path, typer.Option("--settings", metavar="FILE", help="Settings of the engine, in YAML.")]
Batch = Annotated[str | None, typer.Option(metavar="N..M", help="Plan decode batches of these sizes.")]
TraceFile = Annotated[str | None, typer.Option("--trace", metavar="FILE", help="Plan the steps of a request trace.")]
DumpFolder = Annotated[
    Path | None, typer.Option("--dump", metavar="FOLDER", help="Plan the steps of castq run --dump.")
]
Histogram = Annotated[Path | None, typer.Option(metavar="FILE", help="Decode batches from a CSV of batch,count.")]
StepTime = Annotated[float, typer.Option("--step-time", metavar="SECONDS", help="How long a step of the trace lasts.")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N requests of the trace.")]
Svg = Annotated[str | None, typer.Option(metavar="FILE", help="Draw the waste of each batch size; - prints it.")]
Sizes = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="At most so many sizes; as many as now if left out.")
]
Memory = Annotated[float | None, typer.Option("--memory-gib", metavar="GIB", help="At most so much memory for graphs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
_RANGE: Final = ("batch", "mode", "tokens", "waste", "why")


@app.command("examples", epilog="Example: castq shapes examples")
def examples(as_json: AsJson = False) -> None:
    """Print the four worked examples: logical input, and the shape that runs."""
    from castq.commands import show
    from castq.shapes.seed_examples import seed_examples

    rows = [(str(at), one.engine, one.logical, one.physical) for at, one in enumerate(seed_examples(), start=1)]
    head = ("example", "engine", "logical input", "physical input")
    if as_json:
        show.print_json([dict(zip(head, row, strict=True)) for row in rows])
    else:
        show.print_table(head, rows)


@app.command("plan", epilog="Example: castq shapes plan --vendor ascend --settings engine.yaml --batch 1..64")
def plan(
    settings: SettingsFile,
    vendor: Vendor = None,
    batch: Batch = None,
    trace: TraceFile = None,
    dump: DumpFolder = None,
    histogram: Histogram = None,
    step_time: StepTime = 0.03,
    limit: Limit = None,
    svg: Svg = None,
    as_json: AsJson = False,
) -> None:
    """Say what each batch runs as: its padded shape, what falls to eager and why, graphs and their memory, waste.

    Without --batch every batch up to the slots is planned.  With --trace the requests go through the vendor's own
    selection, with --dump the steps are those of a run, with --histogram each decode batch counts as often as it says.
    Exit code 0; 2 for settings, batches or steps that the vendor refuses.
    """
    from castq.commands import show
    from castq.commands.shown_shapes import cells, plan_json, show_plan
    from castq.shapes.plans import block_warnings, plan_batches
    from castq.shapes.settings_file import read_engine
    from castq.shapes.traffic import batch_sizes

    if sum(given is not None for given in (trace, dump, histogram)) > 1:
        raise InvalidValueError("--trace, --dump and --histogram each say what to plan: give one")
    engine = read_engine(settings, vendor)
    planner = engine.planner
    batches = batch_sizes(batch) if batch is not None else tuple(range(1, planner.slots + 1))
    plans = plan_batches(planner, batches)
    steps = _steps(engine, trace, dump, histogram, step_time, limit)
    warned = (
        *planner.warnings(),
        *(steps.warnings(planner) if steps is not None else ()),
        *block_warnings(engine, steps),
    )
    if svg is not None:
        from castq.shapes.heat import heat_svg

        write_text(svg, heat_svg(f"{engine.vendor}: padding by batch size", cells(plans)))
    if as_json:
        show.print_json(plan_json(engine, plans, steps, warned))
    elif svg != STANDARD:
        show_plan(engine, plans, steps, warned)


@app.command("suggest", epilog="Example: castq shapes suggest --settings engine.yaml --trace azure.csv --sizes 8")
def suggest(
    settings: SettingsFile,
    vendor: Vendor = None,
    trace: TraceFile = None,
    dump: DumpFolder = None,
    histogram: Histogram = None,
    step_time: StepTime = 0.03,
    limit: Limit = None,
    sizes: Sizes = None,
    memory_gib: Memory = None,
    as_json: AsJson = False,
) -> None:
    """Propose the bucket or capture list that pads least for the decode batches that occur, the exact optimum.

    Prints count, memory, waste and the share of decode steps above the list, for today's and for the proposed one.
    Exit code 0; 2 for a wrong call.
    """
    from castq.commands import show
    from castq.commands.shown_shapes import listed, memory, per_graph
    from castq.shapes.settings_file import read_engine
    from castq.shapes.suggest import best_sizes, cost_of, share_beyond

    engine = read_engine(settings, vendor)
    planner = engine.planner
    if trace is None and dump is None and histogram is None:
        raise InvalidValueError("give the batches: --trace, --dump or --histogram")
    found = _steps(engine, trace, dump, histogram, step_time, limit)
    assert found is not None, "one of the three was given"
    query = planner.query_len
    rows = {batch * query: float(times) for batch, times in found.decodes.items()}
    best = best_sizes(rows, _most_sizes(planner, sizes, memory_gib), planner.slots * query)
    each = per_graph(planner.graphs())
    lists = [
        (name, of, cost_of(of, rows), share_beyond(of, rows))
        for name, of in (("now", planner.sizes), ("proposed", best.sizes))
    ]
    lost = sum(times for tokens, times in found.mixed.items() if tokens > best.sizes[-1])
    if as_json:
        known = {"vendor": engine.vendor, "decode_steps": found.decodes.total(), "bytes_per_size": each}
        said = {name: {"sizes": list(of), "waste": waste, "beyond": beyond} for name, of, waste, beyond in lists}
        show.print_json({**known, **said, "mixed_steps_that_lose_their_graph": lost})
        return
    show.print_table(
        ("list", "sizes", "memory", "waste", "beyond", "values"),
        [
            (name, str(len(of)), memory(each, len(of)), f"{waste:.1%}", f"{beyond:.1%}", listed(of))
            for name, of, waste, beyond in lists
        ],
    )
    if lost:
        show.say(
            f"{lost} steps with prefills run on a graph today and have more than {best.sizes[-1]} tokens: "
            f"keep today's sizes above {best.sizes[-1]} for them"
        )
    names = {"rbln": "decode_batch_bucket_strategy: manual, decode_batch_bucket_manual"}
    show.say(f"{names.get(engine.vendor, 'capture_sizes')}: [{listed(best.sizes)}]")


@app.command("def", epilog="Example: castq shapes def engine.yaml --out lib/sizes.sq")
def definition(
    settings: Annotated[Path, typer.Argument(metavar="SETTINGS", help="Settings of the engine, in YAML.")],
    vendor: Vendor = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write the library here; - prints it.")] = "-",
) -> None:
    """Write the sizes of an engine as definitions that serving programs use in their costs."""
    from castq.shapes.definitions import definitions
    from castq.shapes.settings_file import read_engine

    write_text(out, definitions(read_engine(settings, vendor).planner))


def _steps(
    engine: Engine, trace: str | None, dump: Path | None, histogram: Path | None, step_time: float, limit: int | None
) -> StepsPlan | None:
    from castq.shapes.plans import StepsPlan, plan_steps
    from castq.shapes.traffic import decode_batch, dumped_steps, read_histogram, traced_steps

    if not step_time > 0:
        raise InvalidValueError(f"--step-time {step_time}: above 0")
    if histogram is not None:
        found = StepsPlan()
        for batch, count in sorted(read_histogram(histogram).items()):
            work = decode_batch(batch, engine.planner.query_len)
            planned = engine.planner.plan(work)
            found.add(planned, work, round(count))
        return found
    if dump is not None:
        return plan_steps(engine.planner, (work for _, work in dumped_steps(dump)))
    if trace is None:
        return None
    from castq.commands import show

    requests = _requests(trace, limit)
    with show.progress("planning") as bar:
        watch = None if bar is None else lambda done: bar("planning", done, 1.0)
        return plan_steps(engine.planner, traced_steps(engine, requests, step_time, watch))


def _requests(trace: str, limit: int | None) -> tuple[Request, ...]:
    from castq.commands.programs import refusals
    from castq.streams import label
    from serq.traces.published import read_requests

    with refusals():
        return read_requests(read_text(trace), Path(label(trace)).name, limit).requests


def _most_sizes(planner: Planner, sizes: int | None, memory_gib: float | None) -> int:
    from castq.commands.shown_shapes import per_graph

    most = sizes if sizes is not None else max(len(planner.sizes), 1)
    if memory_gib is None:
        return most
    each = per_graph(planner.graphs())
    if each is None:
        raise InvalidValueError(f"--memory-gib: the memory of a graph of {planner.vendor} is not known; give --sizes")
    fitting = int(memory_gib * 2**30 / each)
    if fitting < 1:
        raise InvalidValueError(f"--memory-gib {memory_gib}: one graph takes {each / 2**30:.2f} GiB")
    return min(most, fitting) if sizes is not None else fitting
