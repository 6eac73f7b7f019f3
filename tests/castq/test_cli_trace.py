"""`castq trace`: published request traces become trace files, and are replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "traces"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
MOONCAKE = """{"timestamp": 1500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 4000, "input_length": 7322, "output_length": 490, "hash_ids": [0, 14]}
"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (AZURE, ["1,1,374,44,0.000000", "2,1,396,109,4.314579", "3,1,879,55,4.541877"]),
        (AZURE.replace("\n", "\r\n"), ["1,1,374,44,0.000000", "2,1,396,109,4.314579", "3,1,879,55,4.541877"]),
        (MOONCAKE, ["1,1,6758,500,0.000000", "2,1,7322,490,2.500000"]),
    ],
    ids=["azure", "azure, CRLF", "mooncake"],
)
def test_requests_become_sessions(castq: Any, tmp_path: Path, text: Any, rows: Any) -> None:
    source, out = tmp_path / "published", tmp_path / "trace.csv"
    source.write_bytes(text.encode())
    assert castq("trace", str(source), "--out", str(out)).code == 0
    assert out.read_text().splitlines() == ["session,turn,new,out,think", *rows]
    assert castq("trace", str(source), "--out", str(out), "--limit", "1").code == 0
    assert out.read_text().splitlines() == ["session,turn,new,out,think", rows[0]]


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("", "unknown form"),
        ("a,b,c\n1,2,3\n", "TIMESTAMP,ContextTokens,GeneratedTokens"),
        (AZURE.replace("879", "many"), "published:4:2: error: 'many'"),
        (AZURE.replace("2023-11-16 18:15:50", "yesterday"), "published:3:1: error"),
        (AZURE.splitlines()[0] + "\n", "no requests"),
        (AZURE.replace(",55\n", "\n"), "has 3 fields, not 2"),
        (MOONCAKE.replace("7322", "-1"), "published:2:2: error: '-1'"),
        (MOONCAKE.replace('"output_length": 490, ', ""), "output_length"),
        (MOONCAKE[:-20], "no request"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "unknown form"),
    ],
)
def test_a_damaged_trace_is_refused_and_nothing_written(castq: Any, tmp_path: Path, text: Any, telling: Any) -> None:
    source, out = tmp_path / "published", tmp_path / "trace.csv"
    source.write_text(text)
    ran = castq("trace", str(source), "--out", str(out))
    assert (ran.code, ran.out) == (1, "")
    assert telling in ran.err
    assert not out.exists()


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside the checkout")
@pytest.mark.parametrize("name", ["azure-2023/azure-llm-conv-2023.csv", "mooncake/conversation-trace.jsonl"])
def test_published_traces_are_replayed(castq: Any, tmp_path: Path, name: Any) -> None:
    out = tmp_path / "trace.csv"
    assert castq("trace", str(SHARED / name), "--limit", "60", "--out", str(out)).code == 0
    program = str(ROOT / "examples" / "serving" / "arrivals.sq")
    report = json.loads(
        castq("run", program, "--trace", str(out), "--horizon", "4000", "--json", "--", "--requests", "60").out
    )
    assert (report["arrivals"], report["ended"]) == (60, 60)
    longest = 64_000
    too_long = sum(int(row.split(",")[2]) > longest for row in out.read_text().splitlines()[1:])
    assert sum(pool["rejected"] for pool in report["pools"]) == too_long
    assert report["observes"]["ttft"]["count"] == 60 - too_long
