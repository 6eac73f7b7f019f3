"""Settings of an engine from a YAML file, read strictly: line, key, what was got, what is allowed.

vendor: ascend
max_num_seqs: 12
tensor_parallel_size: 4
sp: true
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from castq.shapes.ascend.planner import AscendLayout, AscendPlanner
from castq.shapes.ascend.schedulers import batch_job_scheduler
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.planned import Planner
from castq.shapes.rbln.buckets import BucketLayout
from castq.shapes.rbln.planner import RblnPlanner
from castq.shapes.rbln.scheduler import RblnScheduler
from castq.shapes.rbln.settings import RblnSettings
from castq.shapes.refusals import ShapeError
from castq.shapes.vllm.gpu_graphs import GpuSettings
from castq.shapes.vllm.graph_modes import AttentionSupport, GraphMode
from castq.shapes.vllm.planner import GpuPlanner
from castq.shapes.vllm.scheduler import Scheduler, SchedulerSettings
from tensor_cast.errors import DataFileError, InvalidValueError, nearest
from tensor_cast.files.located_yaml import LocatedYaml, load_yaml

__all__ = ["UNLIMITED_BLOCKS", "VENDORS", "Engine", "read_engine"]

VENDORS: Final = ("ascend", "rbln", "vllm")
UNLIMITED_BLOCKS: Final = 1 << 24
_ENUMS: Final[Mapping[str, type[StrEnum]]] = {"mode": GraphMode, "attention_support": AttentionSupport}
_BLOCK_SIZES: Final = {"ascend": 128, "rbln": 1024, "vllm": 16}
_BUCKETS: Final = {f"decode_batch_bucket_{name}": name for name in ("strategy", "min", "step", "limit", "manual")}
_PARTS: Final[Mapping[str, tuple[type, ...]]] = {
    "ascend": (AscendSettings, AscendLayout),
    "rbln": (RblnSettings,),
    "vllm": (GpuSettings,),
}
_ALIASES: Final = {  # as the vendors spell them
    "cudagraph_capture_sizes": "capture_sizes",
    "cudagraph_mode": "mode",
    "enable_chunked_prefill": "chunked_prefill",
    "enable_prefix_caching": "prefix_caching",
    "max_cudagraph_capture_size": "max_capture_size",
    "num_speculative_tokens": "num_spec_tokens",
}
_OWN: Final = ("vendor", "scheduler")
_SCHEDULERS: Final = {"ascend": ("default", "batch_job"), "rbln": ("default",), "vllm": ("default",)}


@dataclass(frozen=True, slots=True)
class Engine:
    """One vendor's engine at its settings: what plans a step, and what selects the requests of one."""

    vendor: str
    planner: Planner
    selection: SchedulerSettings
    scheduler: str = "default"

    def make_scheduler(self) -> Scheduler:
        """A fresh scheduler of these settings."""
        if self.vendor == "rbln":
            planner = self.planner
            soft = planner.settings.rules.soft_cap if isinstance(planner, RblnPlanner) else True
            return RblnScheduler(self.selection, soft_cap=soft)
        if self.scheduler == "batch_job":
            return batch_job_scheduler(self.selection)
        return Scheduler(self.selection)


def read_engine(path: Path, vendor: str | None = None) -> Engine:
    """The engine of a settings file; `vendor` stands for the file's own key, and must not contradict it.

    Raises DataFileError with line and key for what is unknown or of another kind, for settings that contradict each
    other, and for what the vendor refuses at start-up.
    """
    located = load_yaml(path)
    document = located.value
    if not isinstance(document, dict):
        raise located.error((), "expected settings, one on each line: max_num_seqs: 8")
    named = document.get("vendor")
    if vendor is not None and named not in (None, vendor):
        raise located.error(("vendor",), f"is {named!r}, and {vendor!r} was asked for")
    found = vendor or named
    if found not in VENDORS:
        close = nearest(str(found), VENDORS) if found else ""
        raise located.error(("vendor",), f"expected one of {', '.join(VENDORS)}, got {found!r}{close}")
    try:
        return _engine(located, str(found), document)
    except (ShapeError, InvalidValueError) as error:
        raise DataFileError(located.path, str(error)) from None


def _engine(located: LocatedYaml, vendor: str, document: Mapping[str, Any]) -> Engine:
    _known(located, vendor, document)
    values: dict[str, Any] = {}
    for name, value in document.items():
        ours = _ALIASES.get(name, name)
        if ours in values or (ours != name and ours in document):
            raise located.error((name,), f"is another name of {ours}, which stands there too")
        if name not in _OWN:
            values[ours] = _value(located, name, value, vendor)
    if vendor == "rbln":
        layout = BucketLayout(**{ours: values.pop(theirs) for theirs, ours in _BUCKETS.items() if theirs in values})
        values["buckets"] = layout
    made = [_make(part, values) for part in _PARTS[vendor]]
    planner: Planner
    match made:
        case [AscendSettings() as settings, AscendLayout() as ranks]:
            _consistent(located, document)
            planner = AscendPlanner(settings, ranks)
        case [RblnSettings() as own]:
            planner = RblnPlanner(own)
        case [GpuSettings() as own]:
            planner = GpuPlanner(own)
        case _:
            raise AssertionError(vendor)
    scheduler = document.get("scheduler", "default")
    if scheduler not in _SCHEDULERS[vendor]:
        raise located.error(("scheduler",), f"expected one of {', '.join(_SCHEDULERS[vendor])}, got {scheduler!r}")
    defaults = {"block_size": _BLOCK_SIZES[vendor], "num_blocks": UNLIMITED_BLOCKS, "max_num_seqs": planner.slots}
    defaults["max_num_batched_tokens"] = made[0].max_num_batched_tokens
    return Engine(vendor, planner, _make(SchedulerSettings, {**defaults, **values}), scheduler)


def _make(part: type, values: Mapping[str, Any]) -> Any:
    names = [one.name for one in fields(part)]
    missing = [
        one.name
        for one in fields(part)
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values
    ]
    if missing:
        raise InvalidValueError(f"{missing[0]} is missing")
    return part(**{name: values[name] for name in names if name in values})


def _names(vendor: str) -> list[str]:
    parts = (*_PARTS[vendor], SchedulerSettings)
    found = dict.fromkeys(one.name for part in parts for one in fields(part))
    if vendor == "rbln":
        del found["buckets"]
        found |= dict.fromkeys(_BUCKETS)
    return [*_OWN, *found, *(theirs for theirs, ours in _ALIASES.items() if ours in found)]


def _known(located: LocatedYaml, vendor: str, document: Mapping[str, Any]) -> None:
    allowed = _names(vendor)
    for name in document:
        if name not in allowed:
            close = nearest(str(name), allowed) or f"; it has {', '.join(sorted(allowed))}"
            raise located.error((name,), f"{vendor} has no setting of this name{close}")


def _value(located: LocatedYaml, name: str, value: Any, vendor: str) -> Any:
    """The value as the settings hold it."""
    ours = _ALIASES.get(name, name)
    kind = _kind(ours, vendor)
    if ours in _ENUMS:
        members = [str(one) for one in _ENUMS[ours]]
        if str(value) not in members:
            close = nearest(str(value), members)
            raise located.error((name,), f"expected one of {', '.join(members)}, got {value!r}{close}")
        return _ENUMS[ours](value)
    if "tuple[int" in kind:
        whole = isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
        if not whole:
            raise located.error((name,), f"expected a list of whole numbers, got {value!r}")
        return tuple(value)
    fits = {"int": isinstance(value, int) and not isinstance(value, bool), "bool": isinstance(value, bool)}
    fits["str"] = isinstance(value, str)
    wanted = kind.split(" | ")[0]
    if value is None and "None" in kind:
        return None
    if not fits.get(wanted, True):
        words = {"int": "a whole number", "bool": "true or false", "str": "a word"}
        raise located.error((name,), f"expected {words[wanted]}, got {value!r}")
    return value


def _kind(name: str, vendor: str) -> str:
    """The annotation of a setting."""
    parts = (*_PARTS[vendor], SchedulerSettings, BucketLayout)
    ours = _BUCKETS.get(name, name)
    return next(str(one.type) for part in parts for one in fields(part) if one.name == ours)


def _consistent(located: LocatedYaml, document: Mapping[str, Any]) -> None:
    """Settings that contradict each other are both named."""
    if document.get("enforce_eager") and document.get("capture_sizes"):
        raise located.error(("capture_sizes",), "contradicts enforce_eager: true, which captures nothing")
    if document.get("sp") and document.get("tensor_parallel_size", 1) == 1:
        raise located.error(("sp",), "contradicts tensor_parallel_size 1: sequence parallelism needs at least 2")
