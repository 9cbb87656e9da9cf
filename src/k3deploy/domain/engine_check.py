"""Whether the engine inside the image is one that the profile allows and that takes the launch's options. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from k3deploy.domain.errors import EngineError
from k3deploy.domain.launch.base import Launch
from k3deploy.domain.launch.option_list import FlagCheck, OptionLists, Problem
from k3deploy.domain.profile.models import Engine
from k3deploy.domain.versions import Version, VersionRange


@dataclass(frozen=True)
class EngineChecked:
    """A version inside the range. `options` is what people are told about the flags; warnings are worth a word."""

    version: str
    options: str
    warnings: tuple[str, ...] = ()


def check_engine(engine: Engine, version: str | None, launches: Sequence[Launch], lists: OptionLists) -> EngineChecked:
    """Raises EngineError for a version outside of the profile's range, and for options that it would refuse."""
    if version is None:
        raise EngineError(
            what=f"there is no {engine.name} in the image {engine.image}",
            why="its python3 knows no package of that name",
            fix="correct `engine.image` in the profile",
            context={"found": "none", "wanted": f"{engine.name} {engine.versions}"},
        )
    if not _is_allowed(version, engine.versions):
        raise EngineError(
            what=f"the image has {engine.name} {version}, the profile wants {engine.versions}",
            why="options, log lines and memory differ from version to version; this one was never tried here",
            fix="choose another tag in `engine.image`, or widen `engine.versions` if you know that it fits",
            context={"found": version, "wanted": engine.versions},
        )
    checks = [lists.check(launch.flags, version) for launch in launches]
    errors = _distinct([problem for check in checks for problem in check.errors])
    if errors:
        raise EngineError(
            what=f"{engine.name} {version} would refuse the launch: " + "; ".join(problem.what for problem in errors),
            why="it would say so only after every node had started its container",
            fix="; ".join(dict.fromkeys(problem.fix for problem in errors)),
            context={"found": ", ".join(problem.flag for problem in errors), "wanted": f"options of {version}"},
        )
    warnings = _distinct([problem for check in checks for problem in check.problems if problem.is_warning])
    return EngineChecked(version, _said(checks, version), tuple(f"{each.what}; {each.fix}" for each in warnings))


def _is_allowed(version: str, allowed: str) -> bool:
    try:
        return Version.parse(version) in VersionRange.parse(allowed)
    except ValueError:  # a version in a form of its own can't be placed in any range
        return False


def _said(checks: Sequence[FlagCheck], version: str) -> str:
    if checks and all(check.status == "checked" for check in checks):
        return f"options checked against the list of {version}"
    return f"options unchecked: there is no list of {version}"


def _distinct(problems: Sequence[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))
