"""The options that one release of an engine knows, and whether given words would pass its parser.

An engine that is given a wrong option says so only after its container has started on every node; the list of its
release tells before a node is touched. A release without a list is "unchecked", never "fine".
"""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k3deploy.domain.launch.base import Flag
from k3deploy.domain.versions import Version, VersionRange


@dataclass(frozen=True)
class Option:
    """One option as the engine's own parser declares it. `nargs` is argparse's: None, "+", "*" or "?"."""

    name: str
    aliases: tuple[str, ...]
    takes_value: bool
    kind: str
    nargs: str | None
    choices: tuple[str, ...]
    is_deprecated: bool
    replacement: str


@dataclass(frozen=True)
class Problem:
    """Why the parser would refuse an option, or (when `is_warning`) what its release says against it."""

    flag: str
    what: str
    fix: str
    found: str = ""
    wanted: str = ""
    is_warning: bool = False


@dataclass(frozen=True)
class FlagCheck:
    """`status`: "checked" against `version`, or "unchecked" when there is no list of that release."""

    status: str
    version: str
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if not problem.is_warning)


@dataclass(frozen=True)
class OptionList:
    engine: str
    version: str
    options: Mapping[str, Option]

    @staticmethod
    def from_dict(body: Mapping[str, Any]) -> "OptionList":
        """The shape of data/engines/<engine>/<version>.json."""
        options = {
            name: Option(
                name=name,
                aliases=tuple(entry["aliases"]),
                takes_value=entry["takes_value"],
                kind=entry["type"],
                nargs=entry["nargs"],
                choices=tuple(str(choice) for choice in entry["choices"] or ()),
                is_deprecated=entry["deprecated"],
                replacement=entry["replacement"] or "",
            )
            for entry in body["flags"]
            # `--no-x` of a switch that can be turned off is an option of its own, not another spelling.
            for name in (entry["flag"], *(entry["aliases"] if entry["type"] == "bool-optional" else ()))
        }
        return OptionList(body["meta"]["engine"], body["meta"]["version"], options)

    def problem(self, name: str, words: Sequence[str]) -> Problem | None:
        """What is wrong with `name` (with its dashes) followed by `words`; an error comes before a warning."""
        option = self.options.get(name)
        if option is None:
            return self._unknown(name)
        if not option.takes_value:
            if words:
                fix = f"write `{name[2:]}: true`, or leave it out"
                return Problem(name, f"{name} takes no value", fix, found=" ".join(words), wanted="no value")
        elif (wrong := _wrong_words(option, words)) is not None:
            return wrong
        if option.is_deprecated:
            fix = f"use {option.replacement}" if option.replacement else "look for its successor in the engine's notes"
            return Problem(name, f"{name} is deprecated in {self.engine} {self.version}", fix, is_warning=True)
        return None

    def check(self, flags: Sequence[Flag]) -> FlagCheck:
        """A whole rendered launch."""
        problems = [problem for flag in flags if (problem := self.problem(flag.name, flag.words[1:])) is not None]
        return FlagCheck("checked", self.version, tuple(problems))

    def _unknown(self, name: str) -> Problem:
        for option in self.options.values():
            if name in option.aliases:
                what = f"{name} is another name of {option.name}"
                return Problem(name, what, f"write `{option.name[2:]}`: one name, one meaning")
        near = difflib.get_close_matches(name.replace("_", "-"), self.options, n=1, cutoff=0.7)
        fix = f"did you mean `{near[0][2:]}`?" if near else f"see the options of {self.engine} {self.version}"
        return Problem(name, f"{self.engine} {self.version} has no option {name}", fix)


@dataclass(frozen=True)
class OptionLists:
    """All lists that we have of one engine, by version."""

    lists: Mapping[str, OptionList] = field(default_factory=dict)

    def of(self, version: str) -> OptionList | None:
        """The list of exactly this release: an option may come or go with each one."""
        return self.lists.get(version)

    def newest_in(self, allowed: VersionRange) -> OptionList | None:
        """The newest list that a profile's range allows: the best guess before the image has been seen."""
        known = sorted((Version.parse(text) for text in self.lists), reverse=True)
        return next((self.lists[version.text] for version in known if version in allowed), None)

    def check(self, flags: Sequence[Flag], version: str) -> FlagCheck:
        """Check against the list of exactly `version`, the one that the image reports."""
        found = self.of(version)
        return FlagCheck("unchecked", version) if found is None else found.check(flags)


def _wrong_words(option: Option, words: Sequence[str]) -> Problem | None:
    name = option.name
    if not words and option.nargs not in ("*", "?"):
        wanted = _KINDS.get(option.kind, "text")
        return Problem(name, f"{name} needs a value", f"write `{name[2:]}: VALUE`", found="no value", wanted=wanted)
    if len(words) > 1 and option.nargs not in ("+", "*"):
        return Problem(name, f"{name} takes one value", "write one value", found=" ".join(words), wanted="one value")
    for word in words:
        if option.choices and word not in option.choices:
            near = difflib.get_close_matches(word, option.choices, n=1, cutoff=0.5)
            fix = f"did you mean `{near[0]}`?" if near else "take one of them"
            wanted = f"one of {', '.join(option.choices)}"
            return Problem(name, f"{name} does not know this value", fix, found=word, wanted=wanted)
        try:
            _PARSERS.get(option.kind, str)(word)
        except ValueError:
            wanted = _KINDS.get(option.kind, option.kind)
            return Problem(name, f"{name} takes {wanted}", f"write {wanted}", found=word, wanted=wanted)
    return None


_SUFFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _human_readable_int(text: str) -> int:
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return int(float(text.removesuffix(suffix)) * factor)
    return int(text)


def _json_list(text: str) -> object:
    value = json.loads(text)
    if not isinstance(value, list):
        raise ValueError("not a list")  # noqa: TRY004 - the caller asks one question: does it parse
    return value


_PARSERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "json": json.loads,
    "human_readable_int": _human_readable_int,
    "json_list_type": _json_list,
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "json": "JSON",
    "human_readable_int": "a whole number, or one like 8k or 8Ki",
    "json_list_type": "a JSON list",
}
