"""`castq devices`: the table, one device, JSON, and what is unknown.  Figures are those of docs/devices.md."""

from __future__ import annotations

import json
from typing import Any

from tensor_cast.devices import device_names

Castq = Any


def test_every_device_has_a_line(castq: Castq) -> None:
    ran = castq("devices", "--json")
    assert ran.code == 0
    assert [device["name"] for device in json.loads(ran.out)] == list(device_names())
    table = castq("devices").out
    assert all(name in table for name in device_names())


def test_one_device_says_every_figure_with_its_source(castq: Castq) -> None:
    found = json.loads(castq("devices", "h200", "--json").out)
    assert found["name"] == "h200_sxm"
    capacity = found["figures"]["memory.capacity"]
    assert (capacity["low"], capacity["unit"], capacity["confidence"]) == (141, "GB", "primary")
    assert capacity["alternatives"][0]["unit"] == "GiB"
    ran = castq("devices", "H200_SXM")
    assert ran.code == 0
    assert "4.8 TB/s" in ran.out
    assert "not used: 141 GiB" in " ".join(ran.out.split())


def test_an_unknown_device_is_a_wrong_call_with_the_nearest_name(castq: Castq) -> None:
    ran = castq("devices", "h200_smx")
    assert ran.code == 2
    assert "did you mean 'h200_sxm'" in ran.err
