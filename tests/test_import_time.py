"""Importing a package loads none of the slow libraries, and the packages are typed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

SLOW = {"numpy", "scipy", "yaml", "torch", "pandas", "pyarrow"}
PROGRAM = "import json, sys, {package}; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"


@pytest.mark.parametrize(
    "package",
    [
        "tensor_cast",
        "tensor_cast.operators.leaf",
        "tensor_cast.operators.records",
        "tensor_cast.devices",
        "tensor_cast.performance_model",
        "tensor_cast.performance_model.profiling_database",
        "castq",
        "serq",
    ],
)
def test_importing_is_light(package: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(package=package)], check=True, capture_output=True, text=True
    )
    loaded = set(json.loads(ran.stdout))
    assert package.partition(".")[0] in loaded
    assert loaded & SLOW == set()


def test_public_names_load_on_first_use() -> None:
    program = (
        "import sys, tensor_cast\n"
        "for name in tensor_cast.__all__: getattr(tensor_cast, name)\n"
        "import tensor_cast.performance_model.profiling_database as database\n"
        "for name in database.__all__: getattr(database, name)\n"
        "print(*sorted({'numpy', 'scipy', 'yaml', 'pyarrow'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert {"scipy", "pyarrow"} & set(ran.stdout.split()) == set()


@pytest.mark.parametrize("package", ["tensor_cast", "castq", "serq"])
def test_packages_are_typed(package: str) -> None:
    assert (resources.files(package) / "py.typed").is_file()


@pytest.mark.parametrize("package", ["tensor_cast", "castq"])
def test_packages_say_their_version(package: str) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert importlib.import_module(package).__version__ == project["version"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    import tensor_cast

    with pytest.raises(AttributeError, match="module 'tensor_cast' has no attribute 'Leaf'"):
        tensor_cast.Leaf  # noqa: B018
