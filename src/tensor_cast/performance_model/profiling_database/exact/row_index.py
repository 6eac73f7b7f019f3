"""An index over the rows of one kernel that finds what a scan would find, at a cost independent of the row count.

Two buckets, each checked row by row against the written rules afterwards.  Every rule but padding keeps the number of
elements of each input, so rows are filed under dtypes and element counts.  A padded dimension and the dimension it came
from round up to the same multiple of 64 (the blocks 8, 16, 32 divide 64), so rows are filed under rounded shapes too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final

from tensor_cast.operators.tensor import Shape, TensorSpec
from tensor_cast.performance_model.profiling_database.exact.matching import (
    IDENTITY,
    InputRule,
    Rank,
    combine_rules,
    dtype_key,
    match_input,
    normalised_forms,
)
from tensor_cast.performance_model.profiling_database.mapping.kernel_traits import kernel_traits
from tensor_cast.performance_model.profiling_database.tables.kernel_table import TensorTable
from tensor_cast.performance_model.profiling_database.tables.key_index import KeyIndex
from tensor_cast.performance_model.profiling_database.tables.quiet_collector import collector_at_rest
from tensor_cast.performance_model.profiling_database.tables.shapes import is_padded, strip_leading_one
from tensor_cast.performance_model.profiling_database.tables.tensor_columns import Coded, TensorColumns, by_width

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.tables.key_index import Codes

__all__ = ["RowIndex", "RowMatch"]

_BLOCK: Final = 64
Accept = Callable[[int], bool]
Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class RowMatch:
    """A row that matches, the rule that joined it, and the inputs as that rule read them.

    Under strict matching `rows` are all repeats of the operator, of which the row is the first.
    """

    row: int
    rule: InputRule
    asked: tuple[TensorSpec, ...] = ()
    rows: tuple[int, ...] = ()


class RowIndex:
    """Rows of one table, their inputs cut to the first `input_count` (None = all).

    `strict`: no padding, no relaxed dtypes, and every repeat of the best rule is found.
    """

    def __init__(self, table: TensorTable, input_count: int | None, *, strict: bool = False) -> None:
        self.table = table
        self.strict = strict
        self._kernel = table.kernel
        self._traits = kernel_traits(table.kernel)
        self._latency = table.exact_latency.numbers
        with collector_at_rest():
            self._specs = _cut(table.logical_inputs, input_count)
            usable = [row for row, latency in enumerate(self._latency) if latency > 0]
            self._columns = tuple(by_width(self._specs, usable))
            self._identical = self._filed(self._identities)
        self._by_size: KeyIndex | None = None
        self._by_block: KeyIndex | None = None
        self._lock = threading.Lock()

    def identical(self, shapes: tuple[Shape, ...], dtypes: tuple[str, ...]) -> RowMatch | None:
        """The first row with exactly these logical shapes and database dtypes; one bisection."""
        for row in self._identical.get((dtypes, *shapes)):
            specs = self._specs[row]
            if tuple([spec.shape for spec in specs]) == shapes and tuple([spec.dtype for spec in specs]) == dtypes:
                return RowMatch(row, IDENTITY)
        return None

    def find(self, inputs: tuple[TensorSpec, ...], accept: Accept | None = None) -> RowMatch | None:
        """The best row for inputs whose dtypes are database names.

        Best rule first, then the nearest row, then file order; a strict index takes every row of the best rule.
        """
        forms = normalised_forms(self._kernel, inputs)
        return self._repeats(forms, accept) if self.strict else self._nearest(forms, accept)

    def _repeats(self, forms: tuple[tuple[TensorSpec, ...], ...], accept: Accept | None) -> RowMatch | None:
        found: list[RowMatch] = []
        for form in forms:
            for row in self._sizes().get(self._size_key(form)):
                rule = self._match(row, form)
                if rule is not None and rule.rank is not Rank.PADDED and (accept is None or accept(row)):
                    found.append(RowMatch(row, rule, form))
        if not found:
            return None
        best = min(found, key=lambda match: (self._tiles(match.row), match.rule.rank, match.row))
        return replace(best, rows=tuple(sorted({m.row for m in found if self._repeat(m, best)})))

    def _repeat(self, match: RowMatch, best: RowMatch) -> bool:
        """Whether a row measured what the best one did: products of either orientation, in one storage format."""
        if not self._traits.product:
            return match.rule.rank is best.rule.rank
        return self._tiles(match.row) == self._tiles(best.row)

    def _tiles(self, row: int) -> tuple[bool, ...]:
        """Which inputs of a product are stored in tiles; whole ones come first."""
        return tuple([spec.format != "ND" for spec in self._specs[row]]) if self._traits.product else ()

    def _nearest(self, forms: tuple[tuple[TensorSpec, ...], ...], accept: Accept | None) -> RowMatch | None:
        best: RowMatch | None = None
        for form in forms:
            for row in self._sizes().get(self._size_key(form)):
                best = self._better(best, row, form, accept)
                if best is not None and best.rule.rank is Rank.IDENTITY:
                    return best
        if best is not None:
            return best
        blocks = self._blocks()
        rows = {row for form in forms for key in self._block_keys(form) for row in blocks.get(key)}
        for row in sorted(rows):
            for form in forms:
                best = self._better(best, row, form, accept)
        return best

    def _better(
        self, best: RowMatch | None, row: int, form: tuple[TensorSpec, ...], accept: Accept | None
    ) -> RowMatch | None:
        rule = self._match(row, form)
        if rule is None or (accept is not None and not accept(row)):
            return best
        match = RowMatch(row, rule, form)
        return match if best is None or self._order(match) < self._order(best) else best

    def _order(self, match: RowMatch) -> tuple[Rank, int, int]:
        """Best rule, then the fewest added elements, then file order."""
        held = self._specs[match.row]
        padded = match.rule.rank is Rank.PADDED
        added = sum(abs(a.numel - h.numel) for a, h in zip(match.asked, held, strict=True)) if padded else 0
        return match.rule.rank, added, match.row

    def _match(self, row: int, form: tuple[TensorSpec, ...]) -> InputRule | None:
        recorded = self._specs[row]
        if len(recorded) != len(form) or not _may_match(form[0].shape, recorded[0].shape):
            return None
        rules = []
        for i, (asked, held) in enumerate(zip(form, recorded, strict=True)):
            rule = match_input(asked.shape, held.shape, self._kernel, i)
            if rule is None or self._dtype(asked) != self._dtype(held):
                return None
            rules.append(rule)
        return combine_rules(rules)

    def _dtype_key(self, name: str) -> str:
        return dtype_key(self._kernel, name, strict=self.strict)

    def _dtype(self, spec: TensorSpec) -> str:
        return self._dtype_key(spec.dtype)

    def _sizes(self) -> KeyIndex:
        if self._by_size is None:
            with self._lock:
                if self._by_size is None:
                    self._by_size = self._filed(self._element_counts)
        return self._by_size

    def _blocks(self) -> KeyIndex:
        if self._by_block is None:
            with self._lock:
                if self._by_block is None:
                    self._by_block = self._filed(self._rounded_shapes)
        return self._by_block

    def _filed(self, file: Callable[[KeyIndex, TensorColumns], None]) -> KeyIndex:
        index = KeyIndex()
        with collector_at_rest():
            for columns in self._columns:
                file(index, columns)
        return index.seal()

    @staticmethod
    def _identities(index: KeyIndex, columns: TensorColumns) -> None:
        """Under dtypes and shapes, as `identical` asks."""
        names = index.codes(_rows_of(columns.dtypes, str))
        index.file([names, *[index.codes(shapes.distinct)[shapes.codes] for shapes in columns.shapes]], columns.rows)

    def _element_counts(self, index: KeyIndex, columns: TensorColumns) -> None:
        """Under dtypes and numbers of elements, as `_size_key` gives them."""
        names = index.codes(_rows_of(columns.dtypes, self._dtype_key))
        sizes = [index.codes(list(map(math.prod, shapes.distinct)))[shapes.codes] for shapes in columns.shapes]
        index.file([names, *sizes], columns.rows)

    def _rounded_shapes(self, index: KeyIndex, columns: TensorColumns) -> None:
        """Under dtypes and rounded shapes, with and without a leading 1, as `_block_keys` gives them."""
        names = index.codes(_rows_of(columns.dtypes, self._dtype_key))
        options = [self._options(index, i, shapes) for i, shapes in enumerate(columns.shapes)]
        for choice in product(*options):
            index.file([names, *choice], columns.rows)

    def _options(self, index: KeyIndex, position: int, shapes: Coded[Shape]) -> list[Codes]:
        """The numbers of a slot's rounded shapes; those without the leading 1 only where that gives another."""
        whole = [self._rounded(shape, position) for shape in shapes.distinct]
        stripped = [self._rounded(strip_leading_one(shape), position) for shape in shapes.distinct]
        without = [b if b != a else None for a, b in zip(whole, stripped, strict=True)]
        options: list[Sequence[Hashable]] = [whole, without] if any(without) else [whole]
        return [index.codes(option)[shapes.codes] for option in options]

    def _size_key(self, specs: tuple[TensorSpec, ...]) -> Key:
        return (self._names(specs), *[math.prod(spec.shape) for spec in specs])

    def _block_keys(self, specs: tuple[TensorSpec, ...]) -> Iterator[Key]:
        names = self._names(specs)
        options = [
            {self._rounded(shape, position) for shape in self._target_shapes(spec.shape)}
            for position, spec in enumerate(specs)
        ]
        for choice in product(*options):
            yield (names, *choice)

    def _names(self, specs: tuple[TensorSpec, ...]) -> tuple[str, ...]:
        return tuple([self._dtype(spec) for spec in specs])

    def _rounded(self, shape: Shape, position: int) -> Shape:
        rounded = tuple([-(-dim // _BLOCK) for dim in shape])
        is_weight = position >= 1 and self._traits.product and len(shape) == 2
        return tuple(sorted(rounded)) if is_weight else rounded

    def _target_shapes(self, shape: Shape) -> list[Shape]:
        shapes = _row_shapes(shape)
        for form in tuple(shapes):
            if len(form) == 3 and self._traits.flattened:
                shapes.append((form[0] * form[1], form[2]))
            if len(form) == 3 and self._traits.merged:
                shapes.append((form[0], form[1] * form[2]))
        return shapes


def _row_shapes(shape: Shape) -> list[Shape]:
    bare = strip_leading_one(shape)
    return [shape] if bare is shape else [shape, bare]


def _cut(specs: Sequence[tuple[TensorSpec, ...]], count: int | None) -> Sequence[tuple[TensorSpec, ...]]:
    return specs if count is None else tuple([tensors[:count] for tensors in specs])


def _rows_of(columns: list[Coded[str]], key: Callable[[str], str]) -> list[tuple[str, ...]]:
    """One tuple of keys a row."""
    named = [[key(value) for value in column.distinct] for column in columns]
    if all(len(names) == 1 for names in named):
        return [tuple([names[0] for names in named])] * len(columns[0].codes)
    pairs = zip(named, columns, strict=True)
    return list(zip(*([names[code] for code in column.codes.tolist()] for names, column in pairs), strict=True))


def _may_match(target: Shape, row: Shape) -> bool:
    """Cheap refusal before the rules: first inputs of one rank match dimension by dimension, equal or padded."""
    if len(target) != len(row):
        return True
    return all(asked == held or is_padded(asked, held) for asked, held in zip(target, row, strict=True))
