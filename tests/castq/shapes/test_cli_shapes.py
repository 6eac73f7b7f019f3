"""`castq shapes` and `castq run --check-shapes` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ENGINES = {
    "ascend": "vendor: ascend\nmax_num_seqs: 12\n",
    "rbln": "vendor: rbln\nmax_num_seqs: 8\nmax_num_batched_tokens: 128\ndecode_batch_bucket_limit: 4\n",
    "vllm": "vendor: vllm\nmax_num_seqs: 20\n",
}
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:0{second}.0000000,{prompt},{output}\n"
    for second, prompt, output in ((3, 300, 5), (3, 40, 8), (4, 129, 3), (5, 17, 40))
)
PROGRAM = """
stage npu : step {{ budget {budget}; cost 1; {serve} memory kv; }}
pool kv {{ cap 4096; block 16; }}
workload {{ arrive batch ({count}); turn {{ set prompt = {prompt}; set answer = 4; }} }}
session {{ turn; hold kv (0) {{ prefill on npu (prompt) growing kv; decode on npu (answer) growing kv; }} end; }}
run {{ horizon 1000; }}
"""


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    def write(vendor: str, more: str = "") -> str:
        path = tmp_path / f"{vendor}.yaml"
        path.write_text(ENGINES[vendor] + more)
        return str(path)

    return write


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def program(folder: Path, budget: int = 128, count: int = 3, prompt: int = 40, serve: str = "") -> str:
    path = folder / "program.sq"
    path.write_text(PROGRAM.format(budget=budget, count=count, prompt=prompt, serve=serve))
    return str(path)


def test_the_examples_are_the_seeds(castq: Any) -> None:
    ran = castq("shapes", "examples")
    lines = ran.out.splitlines()
    assert len(lines) == 5
    assert lines[1].endswith("4 rows of query length 1, 1 dummy row")
    assert "111 tokens of padding; 17 tokens of progress" in lines[2]
    assert "8 rows and a token dimension of 128; experts see 256 rows, 20 real" in lines[3]
    assert "8 tokens before graph and DP dispatch; eager boundaries 0, 1, 2, 3, 4, 5, 8; KV for 5" in lines[4]
    assert [row["example"] for row in json.loads(castq("shapes", "examples", "--json").out)] == ["1", "2", "3", "4"]


def test_a_plan_says_what_falls_to_eager_and_the_setting_that_mends_it(castq: Any, engine: Any) -> None:
    ran = castq("shapes", "plan", "--settings", engine("ascend"), "--batch", "1..14")
    assert ran.code == 0
    assert "5..8\tFULL\t8\t38%..0%\t" in ran.out
    assert "9..12\tEAGER\t9..12\t0%\tabove the largest captured size 8" in ran.out
    assert "13..14\tREFUSED\t-\t-\t14 requests, and max_num_seqs is 12" in ran.out
    assert "warning: decode batches of 9..12 run eager; cudagraph_capture_sizes: add 12" in ran.out
    assert "     1 |  : -:. EEEEXX|" in ran.out


@pytest.mark.parametrize(
    ("more", "batches"),
    [
        ("capture_sizes: [1, 2, 4, 8, 16]\n", [("PIECEWISE", 16)] * 4),
        ("capture_sizes: [1, 2, 4, 8, 16]\nmode: FULL_DECODE_ONLY\n", [("EAGER", n) for n in (9, 10, 11, 12)]),
        ("capture_sizes: [1, 2, 4, 8, 12]\n", [("FULL", 12)] * 4),
        ("capture_sizes: [1, 2, 4, 8, 12]\nmode: FULL_DECODE_ONLY\n", [("FULL", 12)] * 4),
    ],
)
def test_nine_to_twelve_decodes(castq: Any, engine: Any, more: str, batches: list[tuple[str, int]]) -> None:
    ran = castq("shapes", "plan", "--settings", engine("ascend", more), "--batch", "9..12", "--json")
    found = json.loads(ran.out)["batches"]
    assert [(one["mode"], one["physical_tokens"]) for one in found] == batches


def test_the_stream_cap_makes_two_decodes_cost_88_rows(castq: Any, engine: Any) -> None:
    sizes = [1, 2, 4, *range(8, 513, 8)]
    more = f"stream_cap: 1920\nlayers: 94\nparallel_kinds: 2\ncapture_sizes: {sizes}\n"
    path = Path(engine("ascend", more))
    path.write_text(path.read_text().replace("max_num_seqs: 12", "max_num_seqs: 512"))
    document = json.loads(castq("shapes", "plan", "--settings", str(path), "--batch", "2", "--json").out)
    assert document["sizes"] == [1, 88, 192, 304, 408, 512]
    assert document["batches"][0]["rows"] == 88


def test_an_external_launcher_with_speculation_sends_every_rank_to_eager(castq: Any, engine: Any) -> None:
    more = "mode: FULL_DECODE_ONLY\nnum_spec_tokens: 3\ndata_parallel_size: 8\n"
    modes = []
    for launcher in ("", "external_launcher: true\n"):
        ran = castq("shapes", "plan", "--settings", engine("ascend", more + launcher), "--batch", "3", "--json")
        modes.append(json.loads(ran.out)["batches"][0])
    assert [one["mode"] for one in modes] == ["FULL", "EAGER"]
    assert modes[1]["why"] == "an idle rank's dummy of 1 tokens runs eager, so every rank does"


def test_settings_may_have_the_vendors_own_names(castq: Any, engine: Any) -> None:
    more = "cudagraph_capture_sizes: [1, 12]\ncudagraph_mode: FULL_DECODE_ONLY\nnum_speculative_tokens: 0\n"
    document = json.loads(castq("shapes", "plan", "--settings", engine("ascend", more), "--json").out)
    assert document["sizes"] == [1, 12]


@pytest.mark.parametrize("vendor", ENGINES)
def test_a_trace_goes_through_the_vendors_selection(castq: Any, engine: Any, trace: str, vendor: str) -> None:
    ran = castq("shapes", "plan", "--settings", engine(vendor), "--trace", trace, "--json")
    steps = json.loads(ran.out)["steps"]
    # every token but the last of each answer is computed: prompts 486, answers 56, four last ones
    assert steps["tokens"] == 486 + 56 - 4
    assert steps["physical_tokens"] >= steps["tokens"]
    assert sum(steps["modes"].values()) == steps["count"]
    assert castq("shapes", "plan", "--settings", engine(vendor), "--trace", trace).code == 0


def test_the_picture_of_waste(castq: Any, engine: Any, tmp_path: Path) -> None:
    out = tmp_path / "waste.svg"
    assert castq("shapes", "plan", "--settings", engine("rbln"), "--svg", str(out)).code == 0
    assert out.read_text().count("<rect") == 8
    printed = castq("shapes", "plan", "--settings", engine("rbln"), "--svg", "-")
    assert printed.out.startswith("<svg")


def test_a_histogram_is_taken_as_it_is(castq: Any, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text("batch,count\n3,10\n8,1\n")
    ran = castq("shapes", "plan", "--settings", engine("rbln"), "--histogram", str(path), "--json")
    steps = json.loads(ran.out)["steps"]
    assert (steps["count"], steps["tokens"], steps["physical_tokens"]) == (11, 38, 48)


def test_a_suggestion_is_the_exact_optimum(castq: Any, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text("batch,count\n1,1\n3,10\n5,10\n")
    ran = castq("shapes", "suggest", "--settings", engine("rbln"), "--histogram", str(path), "--sizes", "3", "--json")
    document = json.loads(ran.out)
    assert document["proposed"]["sizes"] == [3, 5, 8]  # 1 on 3 rows pads 2; without 3 ten steps would pad 2 each
    assert document["proposed"]["waste"] == pytest.approx(2 / 83)
    assert document["proposed"]["beyond"] == 0
    bounded = castq("shapes", "suggest", "--settings", engine("rbln"), "--histogram", str(path), "--memory-gib", "0.5")
    assert bounded.out.splitlines()[2].split("\t")[:3] == ["proposed", "2", "0.50 GiB"]
    assert "decode_batch_bucket_manual: [5, 8]" in bounded.out


def test_a_suggestion_says_what_today_runs_beyond_the_list(castq: Any, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text("batch,count\n4,30\n12,10\n")
    settings = engine("ascend")
    ran = castq("shapes", "suggest", "--settings", settings, "--histogram", str(path), "--json")
    document = json.loads(ran.out)
    assert document["now"] == {"sizes": [1, 2, 4, 8], "waste": 0, "beyond": 0.25}
    assert document["proposed"]["beyond"] == 0


def test_definitions_and_planner_agree_on_every_batch(castq: Any, engine: Any, tmp_path: Path) -> None:
    import serq
    from serq.compiler import compile as compile_program

    text = castq("shapes", "def", engine("rbln")).out
    assert text.splitlines()[1] == "def decode_rows(n) = n <= 1 ? 1 : n <= 2 ? 2 : n <= 4 ? 4 : 8;"
    document = json.loads(castq("shapes", "plan", "--settings", engine("rbln"), "--json").out)
    for one in document["batches"]:
        source = text + (
            f"stage npu : step {{ budget 64; cost decode_rows({one['batch']}); }}\n"
            "workload { arrive batch (1); turn { set answer = 2; } }\n"
            "session { turn; decode on npu (answer); end; }\nrun { horizon 100; }\n"
        )
        first, second = serq.run(compile_program(source=source), iterations=True).iterations
        assert second.time - first.time == one["rows"]


@pytest.mark.parametrize(
    ("vendor", "more", "words"),
    [
        ("ascend", "max_num_sequences: 4\n", "ascend.yaml:3: max_num_sequences: ascend has no setting of this name"),
        ("ascend", "mode: FULL_DECODE\n", "ascend.yaml:3: mode: expected one of NONE, PIECEWISE"),
        ("ascend", "version: 0.1\n", "ascend.yaml:3: version: expected a word, got 0.1"),
        ("ascend", "version: '0.1'\n", "vllm-ascend '0.1': described are 0.23.0"),
        ("ascend", "enforce_eager: true\ncapture_sizes: [1]\n", "contradicts enforce_eager: true"),
        ("ascend", "sp: true\n", "contradicts tensor_parallel_size 1"),
        ("ascend", "capture_sizes: [1, two]\n", "expected a list of whole numbers"),
        ("rbln", "decode_batch_bucket_strategy: manual\ndecode_batch_bucket_manual: [1, 4]\n", "must be the ceiling 8"),
        ("rbln", "pipeline_parallel_size: 16\n", "max_num_seqs 8 is below pipeline_parallel_size 16"),
        ("rbln", "scheduler: batch_job\n", "scheduler: expected one of default"),
        ("vllm", "max_num_seqs: 2\n", "duplicate"),
        ("vllm", "cudagraph_mode: FULL\nmode: FULL\n", "cudagraph_mode: is another name of mode"),
    ],
)
def test_bad_settings_are_refused_by_line_and_name(castq: Any, engine: Any, vendor: str, more: str, words: str) -> None:
    ran = castq("shapes", "plan", "--settings", engine(vendor, more))
    assert ran.code == 2
    assert words in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch", "0"], "batches go from 1 upwards"),
        (["--batch", "4..2"], "batches go from 1 upwards"),
        (["--batch", "many"], "expected N, N,M or N..M"),
        (["--vendor", "rbln"], "'ascend', and 'rbln' was asked for"),
        (["--step-time", "0"], "--step-time 0.0: above 0"),
        (["--trace", "a", "--dump", "b"], "give one"),
    ],
)
def test_bad_calls_are_refused(castq: Any, engine: Any, arguments: list[str], words: str) -> None:
    ran = castq("shapes", "plan", "--settings", engine("ascend"), *arguments)
    assert ran.code == 2
    assert words in ran.err


def test_an_empty_trace_is_refused(castq: Any, engine: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    ran = castq("shapes", "plan", "--settings", engine("ascend"), "--trace", str(empty))
    assert ran.code != 0
    assert "holds no requests" in ran.err


def test_a_request_that_never_fits_ends_the_plan(castq: Any, engine: Any, trace: str) -> None:
    ran = castq("shapes", "plan", "--settings", engine("vllm", "num_blocks: 4\n"), "--trace", trace)
    assert ran.code == 2
    assert "the first of them never fits: raise num_blocks" in ran.err


@pytest.mark.parametrize(
    ("vendor", "options", "rule", "words"),
    [
        ("rbln", {}, "exclusive_prefill", "a prefill is alone"),
        (
            "rbln",
            {"serve": "serve exclusive prefill;", "prompt": 300, "budget": 256},
            "chunk_exceeds_compiled_width",
            "256 tokens: the compiled width is 128",
        ),
        (
            "rbln",
            {"serve": "serve exclusive prefill;", "prompt": 190, "budget": 100},
            "R-e",
            "starts at 100, no multiple of the width 128",
        ),
        (
            "rbln",
            {"serve": "serve exclusive prefill;", "count": 9},
            "no_covering_bucket",
            "9 decodes: the largest compiled bucket has 8 rows",
        ),
        ("ascend", {"count": 13, "budget": 1000}, "too_many_requests", "13 requests, and max_num_seqs is 12"),
        ("ascend", {"count": 3, "budget": 5000, "prompt": 1000}, "token_budget", "max_num_batched_tokens is 2048"),
    ],
)
def test_a_program_that_breaks_a_rule_gets_it_named(
    castq: Any, engine: Any, tmp_path: Path, vendor: str, options: dict[str, Any], rule: str, words: str
) -> None:
    ran = castq("run", program(tmp_path, **options), "--check-shapes", engine(vendor))
    assert ran.code == 1
    assert f": {rule}: " in ran.out
    assert words in ran.out
    assert "shapes: step " in ran.out


def test_a_checked_run_is_the_same_run(castq: Any, engine: Any, tmp_path: Path) -> None:
    file = program(tmp_path, serve="serve exclusive prefill;")
    plain = json.loads(castq("run", file, "--json").out)
    checked = json.loads(castq("run", file, "--check-shapes", f"npu={engine('rbln')}", "--json").out)
    shapes = checked.pop("shapes")
    assert checked == plain
    assert shapes["violations"] == []
    assert shapes["engines"]["npu"]["tokens"] == 3 * 44


def test_an_engine_that_is_not_there_is_named(castq: Any, engine: Any, tmp_path: Path) -> None:
    ran = castq("run", program(tmp_path), "--check-shapes", f"gpu={engine('rbln')}")
    assert ran.code == 2
    assert "no engine 'gpu'; it has npu" in ran.err


def test_the_steps_of_a_dump_are_planned(castq: Any, engine: Any, tmp_path: Path) -> None:
    file, out = program(tmp_path, serve="serve exclusive prefill;"), tmp_path / "dump"
    assert castq("run", file, "--dump", str(out)).code == 0
    ran = castq("shapes", "plan", "--settings", engine("rbln"), "--dump", str(out), "--json")
    assert json.loads(ran.out)["steps"]["tokens"] == 3 * 44


@pytest.mark.parametrize(
    ("example", "text"),
    [
        ("rbln_like", "vendor: rbln\nmax_num_seqs: 8\nmax_num_batched_tokens: 128\ndecode_batch_bucket_limit: 4\n"),
        ("ascend_like", "vendor: ascend\nmax_num_seqs: 32\ntensor_parallel_size: 4\nsp: true\n"),
    ],
)
def test_the_examples_break_no_rule(castq: Any, tmp_path: Path, example: str, text: str) -> None:
    settings = tmp_path / "engine.yaml"
    settings.write_text(text)
    file = Path(__file__).parents[3] / "examples" / "serving" / f"{example}.sq"
    ran = castq("run", str(file), "--horizon", "120", "--warmup", "10", "--check-shapes", str(settings))
    assert ran.out.splitlines()[-1] == "shapes: no violation"
