"""Whether two checkouts give the same answers: `python tools/same_answers.py OLD NEW [--count 20000] [--seed 0]`.

Asked of both: every operator of the RFC's check and of the sweeps, at measured and at other coordinates, on the three
demo databases; `--count` random lookups on installed GPU tables; every program of the folder named by `--programs`.
Questions are drawn once, by this checkout, and answered by each checkout in a process of its own.  Exit code 0 where
all are equal, 1 with the first differences otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # the operators of the sweeps

GPU: Final = ("h200_sxm/vllm/0.24.0", "b200_sxm/trtllm/1.3.0rc20", "gb300/sglang/0.5.10", "h200_sxm/sglang/0.5.14")
PROGRAMS: Final = ROOT.parent / "shared" / "conformance" / "serq"
_SHOWN: Final = 10
_ANSWER: Final = """
import json, sys
try:
    from tensor_cast.operators.records import leaf_from_json
except ImportError:  # checkouts from before operators had a room
    from tensor_cast.records import leaf_from_json
from tensor_cast import InterpolatingDataSource, ParallelConfig, ProfilingDataSource, open_database
sources, databases = {}, {}
for line in open(sys.argv[1], encoding="utf-8"):
    asked = json.loads(line)
    key = asked["database"], asked["ep_size"]
    if key not in sources:
        if key[0] not in databases:
            databases[key[0]] = open_database(key[0])
        layout = ParallelConfig(expert_parallel_size=key[1])
        sources[key] = InterpolatingDataSource(ProfilingDataSource(databases[key[0]], None, layout))
    try:
        answer = sources[key].query(leaf_from_json(asked["operator"]))
    except Exception as error:
        print(json.dumps(["raises", repr(error)]))
        continue
    keys = list(answer.details) if sys.argv[2] else ["kernel_type", "axes", "candidate_points", "synthetic"]
    known = {key: answer.details[key] for key in keys if key in answer.details}
    if hasattr(answer, "latency_us"):
        said = [repr(answer.latency_us), answer.source, known, repr(answer.shape_match_info) if sys.argv[2] else ""]
    else:
        said = [None, answer.code, known if sys.argv[2] else {}]
    print(json.dumps(said, default=list, sort_keys=True))
"""
_RUN: Final = """
import json, sys
from pathlib import Path
import serq
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*.json")):
    case = json.loads(path.read_text())
    files, settings = case["files"], case["settings"]
    workload = files.get("workload")
    keys = ("sets", "defs", "seed", "horizon", "warmup", "arrivals")
    try:
        program = serq.compile(folder / files["program"], workload=None if workload is None else folder / workload,
                               **{key: settings[key] for key in keys if key in settings})
        said = serq.run(program).to_json(samples=True)
    except (serq.SerqError, serq.RunError) as error:
        said = str(error)
    print(json.dumps([path.stem, said], sort_keys=True))
"""


def questions(folder: Path, count: int, seed: int) -> Iterator[dict[str, object]]:
    """Questions with their database: on the demo databases five thousand, on GPU tables `count`."""
    from castq.rfc.rows import load_rows
    from sweeps import ASCEND_LEAVES, GPU_LEAVES, subject
    from tensor_cast import open_database
    from tensor_cast.demo import write_demo_database
    from tensor_cast.errors import InvalidValueError
    from tensor_cast.operators.records import leaf_to_json

    rows = load_rows().rows
    drawn = random.Random(seed)
    report = write_demo_database(folder, noise=0.05, versions=("0.13", "0.15", "0.18"))
    demo = [
        (str(written.path), probe.leaf, probe.ep_size)
        for written in report.databases
        for row in rows
        for probe in row.probes
    ]
    demo += [(str(written.path), leaf, 16) for written in report.databases for leaf in ASCEND_LEAVES]
    gpu = [(name, row.real.leaf, row.real.ep_size) for name in GPU for row in rows if row.real is not None]
    gpu += [(name, leaf, None) for name in GPU for leaf in GPU_LEAVES]
    for asked, number in ((demo, 5_000), (gpu if find_spec("aiconfigurator_core") else [], count)):
        opened = {where: open_database(where) for where, _, _ in asked}
        found = [(where, ep, one) for where, leaf, ep in asked if (one := subject(where, opened[where], leaf, ep))]
        for where, leaf, ep in asked:
            yield {"database": where, "ep_size": ep, "operator": leaf_to_json(leaf)}
        left = number if found else 0
        while left:
            where, ep, one = drawn.choice(found)
            axes = drawn.sample(sorted(one.values), drawn.randint(1, min(3, len(one.values))))
            place = {axis: _coordinate(drawn, one.values[axis]) for axis in axes}
            with suppress(InvalidValueError):  # no operator lies there
                yield {"database": where, "ep_size": ep, "operator": leaf_to_json(one.at(place))}
                left -= 1


def _coordinate(drawn: random.Random, values: Sequence[int]) -> int:
    """A value worth asking, or any up to the largest."""
    return drawn.choice(values) if drawn.random() < 0.7 else drawn.randint(1, max(1, values[-1]))


def answers(checkout: Path, code: str, argument: Path, more: str = "") -> list[str]:
    """What the code prints on the sources of a checkout, line by line."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-c", code, str(argument), more]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{checkout}: {ran.stderr[-2000:]}")
    return ran.stdout.splitlines()


def compared(what: str, asked: Sequence[str], old: Sequence[str], new: Sequence[str]) -> int:
    """How many answers differ; prints the first of them."""
    different = [i for i, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    sys.stdout.write(f"{what}: {len(old)} answers, {len(different)} differ\n")
    for i in different[:_SHOWN]:
        sys.stdout.write(f"  {asked[i][:400]}\n    old {old[i][:400]}\n    new {new[i][:400]}\n")
    return len(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--count", type=int, default=20_000, help="random lookups on GPU tables")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--details", action="store_true", help="compare everything an answer says, not only its numbers"
    )
    parser.add_argument("--programs", type=Path, default=PROGRAMS)
    given = parser.parse_args()
    more = "details" if given.details else ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        asked = [json.dumps(item) for item in questions(Path(folder) / "demo", given.count, given.seed)]
        file.write_text("\n".join(asked) + "\n", encoding="utf-8")
        wrong = compared("lookups", asked, *(answers(place, _ANSWER, file, more) for place in (given.old, given.new)))
    if given.programs.is_dir():
        runs = [answers(place, _RUN, given.programs) for place in (given.old, given.new)]
        wrong += compared("programs", runs[0], *runs)
    else:
        sys.stdout.write(f"programs: none in {given.programs}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
