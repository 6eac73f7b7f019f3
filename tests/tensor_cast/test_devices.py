"""Device profiles and the topology tier of a group of ranks."""

from __future__ import annotations

import pytest

from tensor_cast import ParallelConfig
from tensor_cast.devices import DeviceProfile, device_names, device_profile
from tensor_cast.errors import InvalidValueError, UnknownNameError

NAME = "ATLAS_800_A3_752T_128G_DIE"


def test_a_profile_is_read_once() -> None:
    assert NAME in device_names()
    profile = device_profile(NAME)
    assert (profile.name, profile.comm_grid, profile.tiers) == (NAME, (48, 8, 2), (0, 1, 2))
    assert device_profile(NAME) is profile


@pytest.mark.parametrize("name", ["ATLAS_800_A3", "../devices/" + NAME, NAME + ".yaml", ""])
def test_an_unknown_device_lists_the_known(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown device '{name}'.*; known: {NAME}, a100_sxm, "):
        device_profile(name)


def test_an_unknown_device_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match=rf"\(did you mean '{NAME}'\?\)"):
        device_profile("ATLAS_800_A3_752T_128G")


@pytest.mark.parametrize(
    ("ranks", "tier"),
    [
        ((0, 1), 2),  # two dies of one card
        ((0, 2), 1),  # two cards of one server
        (tuple(range(16)), 1),
        ((15, 16), 0),  # two servers
        (tuple(range(32)), 0),
        ((5,), 2),
        ((5, 5), 2),
        ((0, 768), 0),  # beyond the grid: another server, not the first again
    ],
)
def test_the_tier_is_that_of_the_outermost_difference(ranks: tuple[int, ...], tier: int) -> None:
    assert device_profile(NAME).topology_tier(ranks) == tier


def test_a_level_without_measurements_takes_the_next_outer_one() -> None:
    profile = DeviceProfile("x", (4, 8, 2), (0, 2))
    assert profile.topology_tier((0, 2)) == 0
    assert DeviceProfile("x", (4, 8, 2), (1, 2)).topology_tier((0, 16)) is None
    assert DeviceProfile("x").topology_tier((0, 1)) is None


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "8"])
def test_parallel_sizes_are_positive_integers(value: object) -> None:
    with pytest.raises(InvalidValueError, match=f"^tensor_parallel_size must be an integer >= 1, got {value!r}$"):
        ParallelConfig(tensor_parallel_size=value)  # type: ignore[arg-type]


def test_only_expert_parallelism_may_be_unset() -> None:
    assert ParallelConfig().expert_parallel_size is None
    with pytest.raises(InvalidValueError, match="data_parallel_size must be an integer >= 1, got None"):
        ParallelConfig(data_parallel_size=None)  # type: ignore[arg-type]
