"""YAML read safely and strictly: no tags that build objects, no duplicate keys, line numbers for every error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensor_cast.errors import DataFileError
from tensor_cast.files.decimal_text import parse_real

__all__ = ["LocatedYaml", "load_yaml", "parse_yaml"]

_MAX_BYTES = 16 * 1024 * 1024
_MAX_NODES = 100_000
_MAX_SHOWN = 60
_PLAIN_TAG = "tag:yaml.org,2002:"
_COLLECTION_TAGS = frozenset(_PLAIN_TAG + name for name in ("map", "seq", "set", "omap", "pairs"))
_NUMBER_TAGS = frozenset(_PLAIN_TAG + name for name in ("int", "float"))
_LFS = b"version https://git-lfs.github.com/spec/v1"


@dataclass(frozen=True)
class LocatedYaml:
    """A document and the line of each of its keys, addressed by the tuple of keys that leads there."""

    path: Path
    value: Any
    lines: dict[tuple[object, ...], int] = field(default_factory=dict)

    def error(self, keys: tuple[object, ...], problem: str) -> DataFileError:
        """An error that points at the deepest known key of `keys`."""
        known = keys
        while known and known not in self.lines:
            known = known[:-1]
        where = ".".join(str(key) for key in keys)
        return DataFileError(self.path, f"{where}: {problem}" if where else problem, line=self.lines.get(known))


def load_yaml(path: Path) -> LocatedYaml:
    """Read and parse one file.  Raises DataFileError for anything but plain, duplicate-free YAML."""
    try:
        if not path.is_file() and path.exists():
            raise DataFileError(path, "cannot be read: is no regular file", code="unreadable")
        if path.stat().st_size > _MAX_BYTES:
            raise DataFileError(path, f"larger than {_MAX_BYTES} bytes", code="too_large")
        raw = path.read_bytes()
    except OSError as error:
        raise DataFileError(path, f"cannot be read: {error.strerror or error}", code="unreadable") from None
    if raw.startswith(_LFS):
        raise DataFileError(path, "is a Git-LFS pointer, not data: fetch it with 'git lfs pull'", code="lfs_pointer")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(path, f"not UTF-8 text (byte {error.start})", code="encoding") from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> LocatedYaml:
    """Parse text that came from `path`."""
    import yaml

    try:
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise DataFileError(path, error.problem or "not valid YAML", line=line, code="yaml_syntax") from None
    except yaml.YAMLError as error:
        raise DataFileError(path, f"not valid YAML: {error}", code="yaml_syntax") from None
    except RecursionError:
        raise DataFileError(path, "too many nested values", code="too_large") from None
    located = LocatedYaml(path, None)
    if node is None:
        return located
    builder = _Builder(path, located.lines)
    return LocatedYaml(path, builder.build(node, ()), located.lines)


def _is_decimal(text: str) -> bool:
    """Whether a number means what it looks like: YAML also takes `1_6`, `010` (8), `0x10`, `1:30` (90) and `.nan`."""
    bare = text.lstrip("+-")
    return parse_real(text) is not None and not (len(bare) > 1 and bare[0] == "0" and bare.isdecimal())


def _compose(text: str) -> object:
    """The document as nodes.  The fast parser has other words for an error, so what it refuses is parsed again."""
    import yaml

    fast = getattr(yaml, "CSafeLoader", None)
    if fast is not None:
        with suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=fast)
    return yaml.compose(text, Loader=yaml.SafeLoader)


class _Builder:
    """Turns composed nodes into plain values; counts them, so that nested aliases cannot explode."""

    def __init__(self, path: Path, lines: dict[tuple[object, ...], int]) -> None:
        import yaml

        self._yaml = yaml
        self._path = path
        self._lines = lines
        self._count = 0
        self._scalars = yaml.constructor.SafeConstructor()

    def build(self, node: Any, keys: tuple[object, ...]) -> Any:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > _MAX_NODES or len(keys) > 100:
            raise DataFileError(self._path, "too many nested or aliased values", line=line, code="too_large")
        if not node.tag.startswith(_PLAIN_TAG) or "/" in node.tag[len(_PLAIN_TAG) :]:
            raise DataFileError(self._path, f"tag {node.tag!r} is not allowed", line=line, code="yaml_tag")
        self._lines.setdefault(keys, line)
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, self._yaml.SequenceNode):
            return [self.build(item, (*keys, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: Any, keys: tuple[object, ...]) -> dict[object, object]:
        result: dict[object, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self.build(key_node, (*keys, "?"))
            if isinstance(key, list | dict):
                raise DataFileError(self._path, "a mapping key must be a scalar", line=line, code="yaml_syntax")
            if key in result:
                raise DataFileError(self._path, f"duplicate key {key!r}", line=line, code="duplicate_key")
            self._lines[(*keys, key)] = line
            result[key] = self.build(value_node, (*keys, key))
        return result

    def _scalar(self, node: Any, line: int) -> Any:
        if node.tag in _NUMBER_TAGS and not _is_decimal(node.value):
            kind = node.tag.removeprefix(_PLAIN_TAG)
            problem = f"cannot read {node.value[:_MAX_SHOWN]!r} as {kind}: write a decimal number, or quote it as text"
            raise DataFileError(self._path, problem, line=line, code="yaml_value")
        constructor = self._scalars.yaml_constructors.get(node.tag)
        if constructor is None or node.tag in _COLLECTION_TAGS:
            raise DataFileError(self._path, f"tag {node.tag!r} is not allowed", line=line, code="yaml_tag")
        try:
            return constructor(self._scalars, node)
        except (ValueError, LookupError, AttributeError, self._yaml.YAMLError):
            problem = f"cannot read {node.value[:_MAX_SHOWN]!r} as {node.tag.removeprefix(_PLAIN_TAG)}"
            raise DataFileError(self._path, problem, line=line, code="yaml_value") from None
