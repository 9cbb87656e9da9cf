"""Read YAML that a person wrote: values with their line numbers, and an error for each of YAML's well-known traps.

Stricter than PyYAML's safe loader: only text, numbers, true/false, null, lists and maps; keys are text and never
doubled; dates, octals and 12:30 stay text; yes/no/on/off have to be written true/false or be quoted.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from k3deploy.domain.faults import Fault, Path, raise_if_any

MAX_BYTES = 128 * 1024  # a profile has some 5 kB, a file of 18 nodes less; anything far above is another file
_MAX_DEPTH = 40
_MAX_VALUES = 20_000  # aliases of aliases grow without limit: a file of 1 kB can hold more values than atoms

_PREFIX = "tag:yaml.org,2002:"
_AMBIGUOUS = "tag:k3deploy:ambiguous"
_NUMBER_START = list("-+.0123456789")


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the plain scalars of YAML 1.2, and underscores in whole numbers as we like them."""


_Loader.yaml_implicit_resolvers = {}


_PLAIN: list[tuple[str, re.Pattern[str], list[str]]] = [
    (_PREFIX + "bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    (_PREFIX + "int", re.compile(r"[-+]?(0|[1-9][0-9_]{0,24})"), _NUMBER_START),
    (
        _PREFIX + "float",
        re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*|(?=[eE])))([eE][-+]?[0-9]{1,3})?"),
        _NUMBER_START,
    ),
    (_PREFIX + "null", re.compile(r"~|null|Null|NULL|"), [*"~nN", ""]),
    (_PREFIX + "merge", re.compile(r"<<"), ["<"]),
    (_AMBIGUOUS, re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"), list("yYnNoO")),
]
for _tag, _pattern, _first in _PLAIN:
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern.pattern})$"), _first)


@dataclass(frozen=True)
class Document:
    """A mapping read from a file. `lines` has the line, counted from 1, of every value in it.

    `faults` are traps of YAML that hide nothing else, such as a key written twice: whoever uses the value reports them
    together with its own.
    """

    name: str
    value: dict[str, Any]
    lines: Mapping[Path, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def at(self, path: Path) -> str:
        """`file:line` of a value, or of the nearest thing around it; the name alone where there are no lines."""
        if not self.lines:
            return self.name
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"


def read(data: bytes, name: str) -> Document:
    """A file's content as a mapping. Raises ProfileError or ProfileFaults when the text holds no usable mapping."""
    text = _decode(data, name)
    root = _compose(text, name)
    if root is None:
        raise Fault(f"{name} is empty", "write the file, or take another one", at=name).as_error()
    if not isinstance(root, yaml.MappingNode):
        raise Fault(
            f"{name} is not a map of keys and values",
            "begin with lines like `name: value`",
            at=f"{name}:{root.start_mark.line + 1}",
            found="a list" if isinstance(root, yaml.SequenceNode) else "a single value",
            wanted="keys and values",
        ).as_error()
    reader = _Reader(name)
    value = reader.value(root, ())
    raise_if_any(reader.fatal, name)
    return Document(name, value, reader.lines, tuple(reader.faults))


def read_value(text: str, name: str) -> Any:
    """One value as typed after `--set path=`: a scalar, or a list or map in flow style."""
    root = _compose(text, name)
    if root is None:
        return None
    reader = _Reader(name)
    value = reader.value(root, ())
    raise_if_any([*reader.fatal, *reader.faults], name)
    return value


def is_plain(text: str) -> bool:
    """Whether a text, written without quotes, is read as that text and not as a number, a switch or nothing."""
    return not any(pattern.fullmatch(text) for _, pattern, _ in _PLAIN)


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise Fault(
            f"{name} is too large to be a file of this kind",
            "name another file",
            at=name,
            found=f"more than {MAX_BYTES} bytes",
            wanted=f"at most {MAX_BYTES} bytes",
        ).as_error()
    try:
        return data.decode("utf-8-sig")  # editors on Windows begin a file with a byte order mark
    except UnicodeDecodeError as err:
        line = data[: err.start].count(b"\n") + 1
        raise Fault(
            f"{name} is not UTF-8 text",
            f"save it as UTF-8, or: iconv -f UTF-16 -t UTF-8 {name}"
            if data[:2] in (b"\xff\xfe", b"\xfe\xff")
            else "save it as UTF-8",
            at=f"{name}:{line}",
            found=f"byte 0x{data[err.start]:02x}",
        ).as_error() from err


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as err:
        raise _syntax_fault(err, text, name).as_error() from err
    except yaml.reader.ReaderError as err:
        line = text.count("\n", 0, err.position) + 1
        raise Fault(
            f"{name} holds a character that YAML does not allow",
            "remove it",
            at=f"{name}:{line}",
            found=f"U+{err.character:04X}",
        ).as_error() from err
    except RecursionError as err:
        raise Fault(f"{name} is nested too deeply", "name another file", at=name).as_error() from err
    except (ValueError, OverflowError) as err:  # PyYAML on escapes beyond Unicode: "\UFFFFFFFF"
        raise Fault(
            f"{name} is not valid YAML", "look for an escape in quotes that is no character", at=name
        ).as_error() from err


def _syntax_fault(err: yaml.MarkedYAMLError, text: str, name: str) -> Fault:
    mark = err.problem_mark or err.context_mark
    line = mark.line if mark else 0
    lines = text.splitlines()
    if line < len(lines) and "\t" in lines[line][: len(lines[line]) - len(lines[line].lstrip())]:
        return Fault(
            "a line begins with a tab", "YAML is indented with spaces: replace the tab", at=f"{name}:{line + 1}"
        )
    why = ", ".join(part for part in (err.context, err.problem) if part)
    return Fault(f"{name} is not valid YAML", "correct the text at this line", at=f"{name}:{line + 1}", why=why)


class _Reader:
    """Turns PyYAML's nodes into plain values; keeps lines, and collects faults instead of stopping at the first.

    After a `fatal` one the value is not what was written.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[Fault] = []
        self.fatal: list[Fault] = []
        self.lines: dict[Path, int] = {}
        self._open: list[int] = []
        self._count = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
        self.lines[path] = node.start_mark.line + 1
        if id(node) in self._open:
            return self._stop(node, path, "a value contains itself", "remove the alias")
        if self._count > _MAX_VALUES:
            if self._count == _MAX_VALUES + 1:
                self._stop(node, path[:1], f"more than {_MAX_VALUES} values", "remove aliases that repeat large parts")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in (_PREFIX + "map", _PREFIX + "seq"):
            return self._stop(node, path, f"the tag `{_tag_text(node)}` is not understood", "remove it")
        if len(self._open) > _MAX_DEPTH:
            return self._stop(node, path[:1], f"more than {_MAX_DEPTH} levels of nesting", "write it flatter")
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.pop()

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a key is a list or a map", "a key is a word")
            elif key_node.tag == _PREFIX + "merge":
                merged = {**self._merge(value_node, path), **merged}
            else:
                self._pair(found, key_node, value_node, path)
        return {**merged, **found}

    def _pair(self, found: dict[str, Any], key_node: yaml.ScalarNode, value_node: yaml.Node, path: Path) -> None:
        key = str(key_node.value)
        if not _is_text(key):
            self._fault(key_node, path, "a key holds half a character", "write another key")
            return
        if key in found:
            first = self.lines[(*path, key)]
            self._fault(
                key_node,
                (*path, key),
                f"the key `{key}` is written twice",
                "keep one of them",
                why=f"the first is on line {first}; only the last would count",
            )
            return
        found[key] = self.value(value_node, (*path, key))
        self.lines[(*path, key)] = key_node.start_mark.line + 1

    def _merge(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        value = self.value(node, path)
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            self._fault(node, path, "`<<` can only merge maps", "give it an alias of a map")
            return {}
        merged: dict[str, Any] = {}
        for part in reversed(parts):
            merged |= part
        return merged

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        kind = node.tag.removeprefix(_PREFIX)
        if node.tag == _AMBIGUOUS:
            fix = f'write true or false, or "{text}" in quotes'
            self._fault(node, path, f"`{text}` may mean true/false or the word", fix, found=text)
            return text.lower() in ("yes", "on")
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind in ("int", "float"):
            return _number(kind, text) if _is_number(text) else text
        if kind != "str":
            return self._stop(node, path, f"the tag `{_tag_text(node)}` is not understood", "remove it")
        if not _is_text(text):
            return self._stop(node, path, "a text holds half a character", "write the whole character")
        return text

    def _stop(self, node: yaml.Node, path: Path, what: str, fix: str) -> None:
        self.fatal.append(Fault(what, fix, path=path, at=f"{self.name}:{node.start_mark.line + 1}"))

    def _fault(self, node: yaml.Node, path: Path, what: str, fix: str, *, why: str = "", found: str = "") -> None:
        at = f"{self.name}:{node.start_mark.line + 1}"
        self.faults.append(Fault(what, fix, path=path, at=at, why=why, found=found))


def _tag_text(node: yaml.Node) -> str:
    return str(node.tag).replace(_PREFIX, "!!")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text.replace("_", "")))
    except ValueError:
        return False


def _number(kind: str, text: str) -> int | float:
    digits = text.replace("_", "")
    return int(digits) if kind == "int" and digits.lstrip("+-").isdigit() else float(digits)


def _is_text(text: str) -> bool:
    """Half of a surrogate pair can be written as an escape, but is no character that a file or a program can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
