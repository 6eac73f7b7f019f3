"""Typed schema of `op_mapping.yaml`: which kernel's table answers which operator, and under which policy.

Every documented field has a type; a wrong type is an error with file and line, an unknown key is kept and reported.
Source: RFC 5; docs/databases.md, "Keys of op_mapping.yaml".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tensor_cast.errors import DataFileError, nearest
from tensor_cast.files.located_yaml import LocatedYaml, load_yaml
from tensor_cast.performance_model.profiling_database.mapping.table_layout import (
    TableLayout,
    parse_layouts,
)

__all__ = [
    "COMPUTE_SUBCATEGORIES",
    "EXACT_MATCH_MODES",
    "FACT_FAMILIES",
    "QUERY_MODES",
    "SHIPPED_MAPPINGS",
    "KernelPolicy",
    "OpMapping",
    "OperatorEntry",
    "load_op_mapping",
    "pinned_entry",
]

SHIPPED_MAPPINGS: Final = Path(__file__).parents[1] / "data"

# Values outside these two sets are kept, since a mapping may be newer than the program; an operator that has one is
# a miss that names it, and `db check` lists it.
QUERY_MODES: Final = (
    "attention_lightning_indexer",
    "attention_sparse_sharedkv",
    "attention_special",
    "elementwise",
    "moe_fused",
    "scatter_nd_update_mla",
)
COMPUTE_SUBCATEGORIES: Final = ("compute_scale", "quantized_matmul")
# Values outside these sets are errors.
FACT_FAMILIES: Final = ("attention", "experts", "latent_attention", "matmul", "quantize", "sparse_attention")
_CATEGORIES: Final = ("compute", "communication")
_TRANSFORMS: Final = {"sqrt": "sqrt_seq", "sqrt_seq": "sqrt_seq", "linear": None, "none": None}

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

EXACT_MATCH_MODES: Final = ("strict", "compatible")

_TOP_TEXT: Final = (
    "version",
    "device",
    "framework",
    "cann_version",
    "pytorch_version",
    "op_plugin_version",
    "collection_date",
    "communication_data_ref",
    "communication_fallback",
    "provenance",
    "format",
    "extends",
    "exact_match",
    "notes",
)
_TOP_MAPS: Final = (
    "operator_mappings",
    "interpolation_policy",
    "latency_policy",
    "query_selection_policy",
    "torch_npu_reference",
    "tables",
)

# field of an entry -> accepted types
_ENTRY_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "kernel_type": (str,),
    "alternate_kernel_types": (list,),
    "query_mode": (str,),
    "compute_subcategory": (str,),
    "tc_input_count": (int,),
    "zero_cost": (bool,),
    "accepted_miss": (str,),
    "category": (str,),
    "composite": (bool,),
    "sub_kernels": (list,),
    "decomposer": (bool, str),
    "decomposer_options": (dict,),
    "primary_kernel_type": (str,),
    "require_all_sub_kernels": (bool,),
    "project_full_shape": (bool,),
    "embedded_compute": (list,),
    "embedded_communication": (dict,),
    "kernel_types_by_input_rank": (dict,),
    "degenerate_bmm_kernel_type": (str,),
    "mtp_projection_kernel_type": (str,),
    "tp_linear_projection": (dict,),
    "runtime_comm_variants": (dict,),
    "expected_input_formats": (list,),
    "quant_mode": (str,),
    "api_path": (str,),
    "facts": (dict,),
    "notes": (str, list),
}

_POLICY_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "max_interpolation_dim": (int,),
    "axis_transform": (str,),
    "shape_transform": (str,),
    "generic_compute": (dict,),
    "quant_mode": (str,),
    "method": (str,),
    "axis_order": (str,),
    "frontier_guard": (bool,),
    "notes": (str, list),
}


@dataclass(frozen=True, slots=True)
class KernelPolicy:
    """Interpolation policy of one kernel; every departure from the defaults is named in the results it touches.

    `method` is `simplex` (RFC) or `bracket_blend` (multilinear over the bracketing cell, every corner measured);
    `axis_order` is `listed` (RFC) or `tightest` (smallest log gap first, among 1D axes); `frontier_guard` refuses a
    multi-axis answer unless some measured point lies at or beyond the target on every axis.
    """

    max_interpolation_dim: int | None = None
    axis_transform: str | None = None
    generic_axis: str = "axis_0"
    quant_mode: str | None = None
    method: str = "simplex"
    axis_order: str = "listed"
    frontier_guard: bool = False


@dataclass(frozen=True)
class OperatorEntry:
    """One operator's entry.  Fields not listed in the schema are in `extra`."""

    name: str
    kernel_type: str | None = None
    alternate_kernel_types: tuple[str, ...] = ()
    query_mode: str | None = None
    compute_subcategory: str | None = None
    tc_input_count: int | None = None
    zero_cost: bool = False
    accepted_miss: str | None = None
    category: str = "compute"
    composite: bool = False
    sub_kernels: tuple[str, ...] = ()
    decomposer: bool = False
    require_all_sub_kernels: bool = False
    quant_mode: str | None = None
    api_path: str | None = None
    facts: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    notes: str = ""
    options: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    extra: Mapping[str, object] = field(default_factory=lambda: _NOTHING)

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The primary kernel and its alternates, in mapping order, without repeats."""
        names = (self.kernel_type, *self.alternate_kernel_types) if self.kernel_type else self.alternate_kernel_types
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True)
class OpMapping:
    """A whole mapping file."""

    path: Path | None = None
    operators: Mapping[str, OperatorEntry] = field(default_factory=lambda: _NOTHING)
    policies: Mapping[str, KernelPolicy] = field(default_factory=lambda: _NOTHING)
    layouts: Mapping[str, TableLayout] = field(default_factory=lambda: _NOTHING)
    header: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    unknown_keys: tuple[str, ...] = ()
    inert_policies: tuple[str, ...] = ()

    @property
    def synthetic(self) -> bool:
        """Whether the database declares its rows as generated, not measured."""
        return self.header.get("provenance", "").startswith("synthetic")

    @property
    def strict(self) -> bool:
        """Whether only the very operator matches (`exact_match: strict`); without the header the RFC's rules hold."""
        return self.header.get("exact_match") == "strict"

    @property
    def communication_data_ref(self) -> str | None:
        return self.header.get("communication_data_ref")

    def policy(self, kernel: str, fallback: str | None = None) -> KernelPolicy:
        """The policy of `kernel`, else that of `fallback` (alternates inherit the primary's), else the default."""
        found = self.policies.get(kernel)
        if found is None and fallback is not None:
            found = self.policies.get(fallback)
        return found or _DEFAULT_POLICY

    def kernel_names(self) -> tuple[str, ...]:
        """Every kernel an entry refers to."""
        names: dict[str, None] = {}
        for entry in self.operators.values():
            names.update(dict.fromkeys((*entry.kernels, *entry.sub_kernels)))
        return tuple(names)


_DEFAULT_POLICY: Final = KernelPolicy()


def pinned_entry(entry: OperatorEntry | None, name: str, kernels: object) -> OperatorEntry:
    """An operator's entry with the kernels that its parent is known to launch, first to last."""
    first, *others = (str(kernel) for kernel in (kernels if isinstance(kernels, tuple) else (kernels,)))
    return replace(entry or OperatorEntry(name), kernel_type=first, alternate_kernel_types=tuple(others))


def load_op_mapping(path: Path, *, _chain: tuple[Path, ...] = ()) -> OpMapping:
    """Read a mapping file.  Raises DataFileError with file and line for wrong types, duplicate keys or tags.

    `extends` names a file, beside this one or a shipped one such as `gpu/vllm.yaml`, whose entries, tables and policies
    are taken first; entries of the same name replace them.
    """
    located = load_yaml(path)
    data = located.value if located.value is not None else {}
    if not isinstance(data, dict):
        raise DataFileError(path, f"expected a mapping at the top, got {type(data).__name__}")
    reader = _Reader(located)
    mapping = reader.read(data)
    if "extends" in mapping.header:
        chain = (*_chain, path.resolve())
        parent = _parent(located, mapping.header["extends"])
        if parent in chain:
            raise located.error(("extends",), f"{mapping.header['extends']!r} leads back to this file")
        return _merge(load_op_mapping(parent, _chain=chain), mapping)
    return mapping


def _parent(located: LocatedYaml, reference: str) -> Path:
    folder = located.path.parent
    parent = (folder / reference).resolve()
    data_root = SHIPPED_MAPPINGS.resolve()
    if not parent.exists() and (data_root / reference).is_file():
        parent = (data_root / reference).resolve()
    if not (parent.is_relative_to(data_root) or parent.is_relative_to(folder.resolve())):
        raise located.error(("extends",), f"{reference!r} lies outside the mapping's own folder")
    return parent


def _merge(base: OpMapping, own: OpMapping) -> OpMapping:
    return OpMapping(
        own.path,
        MappingProxyType({**base.operators, **own.operators}),
        MappingProxyType({**base.policies, **own.policies}),
        MappingProxyType({**base.layouts, **own.layouts}),
        MappingProxyType({**base.header, **own.header}),
        (*base.unknown_keys, *own.unknown_keys),
        (*base.inert_policies, *own.inert_policies),
    )


class _Reader:
    def __init__(self, located: LocatedYaml) -> None:
        self._located = located
        self._unknown: list[str] = []
        self._inert: list[str] = []

    def read(self, data: dict[str, object]) -> OpMapping:
        header = {key: self._text(data[key], (key,)) for key in _TOP_TEXT if data.get(key) is not None}
        if "exact_match" in header:
            self._choice(header["exact_match"], EXACT_MATCH_MODES, ("exact_match",))
        sections = {key: self._map(data.get(key), (key,)) for key in _TOP_MAPS}
        self._unknown += [str(key) for key in data if key not in _TOP_TEXT and key not in _TOP_MAPS]
        operators = {
            str(name): self._entry(str(name), entry, ("operator_mappings", name))
            for name, entry in sections["operator_mappings"].items()
        }
        policies = self._policies(sections["interpolation_policy"])
        layouts = parse_layouts(sections["tables"], self._located, self._unknown)
        for inert in ("latency_policy", "query_selection_policy"):
            overrides = sections[inert].get("kernel_overrides", sections[inert])
            self._inert += [f"{inert}.{key}" for key in self._map(overrides, (inert, "kernel_overrides"))]
        return OpMapping(
            self._located.path,
            MappingProxyType(operators),
            MappingProxyType(policies),
            MappingProxyType(layouts),
            MappingProxyType(header),
            tuple(self._unknown),
            tuple(self._inert),
        )

    def _text(self, value: object, keys: tuple[object, ...]) -> str:
        if isinstance(value, dict | list):
            raise self._located.error(keys, f"expected text, got {type(value).__name__}")
        return str(value)

    def _map(self, value: Any, keys: tuple[object, ...]) -> dict[Any, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._located.error(keys, f"expected a mapping, got {type(value).__name__}")
        return value

    def _entry(self, name: str, value: object, keys: tuple[object, ...]) -> OperatorEntry:
        data = self._map(value, keys)
        known: dict[str, object] = {}
        extra: dict[str, object] = {}
        for key, item in data.items():
            types = _ENTRY_FIELDS.get(key)
            if types is None:
                extra[str(key)] = item
                self._unknown.append(f"operator_mappings.{name}.{key}")
            elif item is not None:
                known[key] = self._typed(item, types, (*keys, key))
        return self._build_entry(name, known, extra, keys)

    def _build_entry(
        self, name: str, known: dict[str, Any], extra: dict[str, Any], keys: tuple[object, ...]
    ) -> OperatorEntry:
        count = known.get("tc_input_count")
        if count is not None and count < 1:
            raise self._located.error((*keys, "tc_input_count"), f"must be at least 1, got {count}")
        self._closed_values(name, known, keys)
        structured = {
            key: known[key]
            for key in known
            if key not in OperatorEntry.__dataclass_fields__ and key not in ("decomposer", "notes")
        }
        notes = known.get("notes", "")
        return OperatorEntry(
            name=name,
            kernel_type=known.get("kernel_type"),
            alternate_kernel_types=self._names(known, "alternate_kernel_types", keys),
            query_mode=known.get("query_mode"),
            compute_subcategory=known.get("compute_subcategory"),
            tc_input_count=count,
            zero_cost=known.get("zero_cost", False),
            accepted_miss=known.get("accepted_miss"),
            category=known.get("category", "compute"),
            composite=known.get("composite", False),
            sub_kernels=self._names(known, "sub_kernels", keys),
            decomposer=bool(known.get("decomposer", False)),
            require_all_sub_kernels=known.get("require_all_sub_kernels", False),
            quant_mode=known.get("quant_mode"),
            api_path=known.get("api_path"),
            facts=MappingProxyType(known.get("facts", {})),
            notes=notes if isinstance(notes, str) else " ".join(str(line) for line in notes),
            options=MappingProxyType(structured),
            extra=MappingProxyType(extra),
        )

    def _closed_values(self, name: str, known: dict[str, Any], keys: tuple[object, ...]) -> None:
        """Refuses a value outside a set that cannot grow; reports one outside a set that may."""
        if "category" in known:
            self._choice(known["category"], _CATEGORIES, (*keys, "category"))
        family = known.get("facts", {}).get("family", FACT_FAMILIES[0])
        self._choice(family, FACT_FAMILIES, (*keys, "facts", "family"))
        for field_name, values in (("query_mode", QUERY_MODES), ("compute_subcategory", COMPUTE_SUBCATEGORIES)):
            value = known.get(field_name)
            if value is not None and value not in values:
                self._unknown.append(f"operator_mappings.{name}.{field_name}: {value}{nearest(value, values)}")

    def _names(self, known: dict[str, Any], key: str, keys: tuple[object, ...]) -> tuple[str, ...]:
        for i, item in enumerate(known.get(key, [])):
            if not isinstance(item, str):
                raise self._located.error((*keys, key, i), f"expected a kernel name, got {item!r}")
        return tuple(known.get(key, ()))

    def _typed(self, value: object, types: tuple[type, ...], keys: tuple[object, ...]) -> object:
        allowed = isinstance(value, types) and not (isinstance(value, bool) and bool not in types)
        if not allowed:
            names = " or ".join(kind.__name__ for kind in types)
            raise self._located.error(keys, f"expected {names}, got {type(value).__name__} {value!r}")
        return value

    def _policies(self, section: dict[object, object]) -> dict[str, KernelPolicy]:
        keys = ("interpolation_policy", "kernel_overrides")
        self._unknown += [f"interpolation_policy.{key}" for key in section if key != "kernel_overrides"]
        overrides = self._map(section.get("kernel_overrides"), keys)
        return {str(kernel): self._policy(value, (*keys, kernel)) for kernel, value in overrides.items()}

    def _policy(self, value: object, keys: tuple[object, ...]) -> KernelPolicy:
        data = self._map(value, keys)
        for key, item in data.items():
            if key in _POLICY_FIELDS:
                self._typed(item, _POLICY_FIELDS[key], (*keys, key))
            else:
                self._unknown.append(".".join(str(part) for part in (*keys, key)))
        ceiling = data.get("max_interpolation_dim")
        if ceiling is not None and not 0 <= ceiling <= 3:
            raise self._located.error((*keys, "max_interpolation_dim"), f"must be 0 to 3, got {ceiling}")
        generic = data.get("generic_compute", {})
        self._unknown += [".".join(map(str, (*keys, "generic_compute", key))) for key in generic if key != "axis"]
        named = "axis_transform" if "axis_transform" in data else "shape_transform"
        transform = self._choice(data.get(named, "none"), tuple(_TRANSFORMS), (*keys, named))
        return KernelPolicy(
            max_interpolation_dim=ceiling,
            axis_transform=_TRANSFORMS[transform],
            generic_axis=self._choice(
                generic.get("axis", "axis_0"), ("axis_0", "output_numel"), (*keys, "generic_compute", "axis")
            ),
            quant_mode=data.get("quant_mode"),
            method=self._choice(data.get("method", "simplex"), ("simplex", "bracket_blend"), (*keys, "method")),
            axis_order=self._choice(data.get("axis_order", "listed"), ("listed", "tightest"), (*keys, "axis_order")),
            frontier_guard=data.get("frontier_guard", False),
        )

    def _choice(self, value: object, allowed: tuple[str, ...], keys: tuple[object, ...]) -> str:
        if value not in allowed:
            close = nearest(str(value), allowed)
            raise self._located.error(keys, f"expected one of {', '.join(allowed)}; got {value!r}{close}")
        return str(value)
