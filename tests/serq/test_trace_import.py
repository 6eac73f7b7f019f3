"""Published traces: converted, or refused with line and field; what is changed or left out is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serq.errors import SerqError
from serq.traces.published import read_requests, trace_text
from serq.traces.replay import read_trace

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def arrivals(text: str, **options: Any) -> list[float]:
    return [arrival for arrival, _, _ in read_requests(text, "t", **options).requests]


def line(timestamp: float, prompt: object = 20, answer: object = 5, **more: Any) -> str:
    return json.dumps({"timestamp": timestamp, "input_length": prompt, "output_length": answer, **more}) + "\n"


def test_requests_are_put_in_order_and_that_is_said() -> None:
    found = read_requests(HEAD + "2023-11-16 18:17:03.9,4,7\n2023-11-16 18:17:02.9,10,5\n", "t")
    assert found.requests == ((0.0, 10, 5), (1.0, 4, 7))
    assert found.notes == ("1 of 2 requests stand after a later one (first: line 3); put in order",)


def test_time_zones_count() -> None:
    # 23:59:59 UTC, and 01:00:00 two hours east of it, which is 23:00:00 UTC: 59 minutes and 59 seconds earlier
    found = read_requests(HEAD + "2024-05-10 23:59:59+00:00,1,2\n2024-05-11 01:00:00+02:00,3,4\n", "t")
    assert found.requests == ((0.0, 3, 4), (3599.0, 1, 2))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_dates_without_a_zone_do_not_depend_on_where_one_is(zone: Any) -> None:
    """An hour and a half over the end of summer time of Berlin stays an hour and a half."""
    program = (
        "from serq.traces.published import read_requests\n"
        f"text = {HEAD!r} + '2024-10-27 01:45:00,1,1\\n2024-10-27 03:15:00,1,1\\n'\n"
        "print(read_requests(text, 't').requests[-1][0])"
    )
    environment = {**os.environ, "TZ": zone}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "5400.0\n"


def test_seven_digits_of_a_second_and_a_zone() -> None:
    assert arrivals(HEAD + "2023-11-16 18:17:03.0000000+00:00,1,1\n2023-11-16 18:17:03.5000000+00:00,1,1\n") == [0, 0.5]


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert read_requests("\ufeff" + HEAD + "2023-11-16 18:17:03,48,10\n", "t").requests == ((0.0, 48, 10),)
    assert read_requests("\ufeff" + line(0, hash_ids=[1]), "t").requests == ((0.0, 20, 5),)


@pytest.mark.parametrize("text", ["20", "20.0", "2e1", '"20"', '"20.0"'])
def test_whole_numbers_in_any_spelling(text: Any) -> None:
    assert read_requests(f'{{"timestamp": 0, "input_length": {text}, "output_length": 5}}', "t").requests[0][1] == 20


@pytest.mark.parametrize(
    "text", ["20.5", "-1", "0", "true", "null", "[1]", '"2_0"', '"２０"', '"many"', "1e30", '""', "0.0"]
)
def test_what_is_no_number_of_tokens_is_named(text: Any) -> None:
    with pytest.raises(SerqError) as caught:
        read_requests(line(0) + f'{{"timestamp": 0, "input_length": {text}, "output_length": 5}}', "t")
    error = caught.value
    assert (error.kind, error.file, error.line, error.column) == ("trace", "t", 2, 2)
    assert "input_length" in error.message
    assert "None" not in str(error)


@pytest.mark.parametrize(
    ("text", "line_number", "said"),
    [
        (HEAD + "2023-11-16 18:17:03.9,4808,0\n", 2, "'0' in GeneratedTokens"),
        (HEAD + "2023-11-16 18:17:03.9,0,5\n", 2, "'0' in ContextTokens"),
        (HEAD + "2023-11-16 18:17:03,1,1\n1700158623.9,1,1\n", 3, "is a number, where earlier lines have a date"),
        (HEAD + "2024-05-10 23:59:59,1,1\n2024-05-10 23:59:59Z,1,1\n", 3, "has a time zone"),
        (HEAD + "soon,1,1\n", 2, "'soon' in TIMESTAMP is no time"),
        (HEAD + "nan,1,1\n", 2, "'nan' in TIMESTAMP is no time"),
        (HEAD + "2023-11-16 18:17:03,1\n", 2, "a line has 3 fields, not 2"),
        (HEAD + '"' + "x" * 200_000 + '",1,1\n', 2, "no CSV"),
        ("timestamp,input_tokens\n1,2\n", 1, "no answer (generatedtokens or"),
        ("timestamp,input_tokens,prompt_tokens,output_tokens\n1,2,3,4\n", 1, "input_tokens and prompt_tokens both say"),
        (line(0) + '{"timestamp": 1, "input_length": 2}\n', 2, "no answer"),
        (line(0) + '{"timestamp": 1,\n', 2, "no request as JSON on one line"),
        (line(0) + "[1, 2]\n", 2, "expected a JSON object"),
        (line(0) + '{"timestamp": NaN, "input_length": 2, "output_length": 1}\n', 2, "NaN is no JSON number"),
        ('{"timestamp": 1, "timestamp": 2, "input_length": 2, "output_length": 1}\n', 1, "'timestamp' stands twice"),
        (line(0, hash_ids=[0, 1]), 1, "hash_ids has 2 blocks of 512 tokens where 20 tokens fill 1"),
        (line(0, hash_ids=3), 1, "hash_ids is no list"),
        ('{\n "benchmarks": []\n}\n', 1, "no request as JSON on one line"),
        ("[\n" + line(0) + "]\n", 1, "unknown form"),
    ],
)
def test_refused_with_the_line(text: Any, line_number: Any, said: Any) -> None:
    with pytest.raises(SerqError) as caught:
        read_requests(text, "t")
    assert (caught.value.kind, caught.value.file, caught.value.line) == ("trace", "t", line_number)
    assert said.replace("has a time zone", "a date with a time zone") in str(caught.value)
    assert str(caught.value).startswith(f"t:{line_number}:")
    assert "None" not in str(caught.value)


def test_blocks_of_another_size() -> None:
    assert read_requests(line(0, hash_ids=[0, 1]), "t", block_size=16).requests == ((0.0, 20, 5),)
    assert read_requests(line(0, 600, hash_ids=[0]), "t").requests == ((0.0, 600, 5),), "complete blocks only"


def test_what_is_left_out_is_said() -> None:
    text = line(0, hash_ids=[1], session_id=0) + line(25, hash_ids=[2], session_id=0) + line(30, hash_ids=[3], type="x")
    assert read_requests(text, "t").notes == (
        "hash_ids left out (3 of 3 requests): prompts share no prefix when replayed",
        "session_id left out (2 of 3 requests): each request is replayed as a session of its own",
        "type left out (1 of 3 requests)",
    )


def test_the_unit_of_numeric_times() -> None:
    assert arrivals(line(1000, hash_ids=[]) + line(3500)) == [0, 2.5]
    assert arrivals(line(1000) + line(3500), unit="s") == [0, 2500]
    table = "request_id,timestamp,input_tokens,output_tokens\n7,1.5,10,2\n8,4,10,2\n"
    assert arrivals(table) == [0, 2.5]
    assert arrivals(table, unit="ms") == [0, 0.0025]


def test_a_unit_that_is_taken_for_granted_is_said() -> None:
    assert "times are taken as milliseconds; --time-unit says otherwise" in read_requests(line(1), "t").notes
    assert (
        "times are taken as seconds; --time-unit says otherwise"
        in read_requests("timestamp,input_tokens,output_tokens\n1,2,3\n", "t").notes
    )
    assert read_requests(line(1), "t", unit="ms").notes == ()
    assert read_requests(line(1, hash_ids=[]), "t").notes[1:] == (), "a Mooncake trace"
    assert read_requests(HEAD + "2023-11-16 18:17:03,1,1\n", "t").notes == ()


def test_large_times_keep_their_differences() -> None:
    assert arrivals(line(1753780607550317) + line(1753780607550318)) == [0, 0.001]


REQUESTS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=30
)


@given(REQUESTS)
def test_nothing_is_lost_and_the_order_is_that_of_time(tmp_path_factory: pytest.TempPathFactory, requests: Any) -> None:
    found = read_requests("".join(line(*request) for request in requests), "t").requests
    start = min(moment for moment, _, _ in requests)
    assert sorted(found) == sorted(((moment - start) / 1000, prompt, answer) for moment, prompt, answer in requests)
    assert [one[0] for one in found] == sorted(one[0] for one in found)
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(trace_text(found))
    back = [turn for session in read_trace(path) for turn in session]
    replayed: list[Any] = [(new, out, think) for new, out, think, _ in back]
    assert replayed == [(prompt, answer, pytest.approx(arrival, abs=1e-6)) for arrival, prompt, answer in found]


def test_a_trace_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfsession,turn,new,out,think\n1,1,3,4,0\n")
    assert read_trace(path) == (((3.0, 4.0, 0.0, 0.0),),)


@pytest.mark.parametrize("text", ["１", "1_0", "0x1", "1e999", "nan", "inf", "--1", ""])
def test_numbers_of_a_trace_file_are_plain(tmp_path: Path, text: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"1,1,{text},1,0\n")
    with pytest.raises(SerqError) as caught:
        read_trace(path)
    assert (caught.value.line, caught.value.column) == (1, 3)
