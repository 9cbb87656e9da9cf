"""Rules about the engine: parsers, options that have another owner, names and values of options, image and versions."""

import re
from collections.abc import Iterator

from k3deploy.domain.faults import Fault, Level, Path, shown
from k3deploy.domain.launch import flags as launch_flags
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.launch.owned import OWNED_ENV, OWNED_FLAGS
from k3deploy.domain.profile.models import FlagValue, Profile
from k3deploy.domain.profile.rule import Rule, flag_path, flags_of, pools
from k3deploy.domain.versions import VersionRange

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHM_SIZE = re.compile(r"[1-9][0-9]*[bkmg]?", re.IGNORECASE)
_TAGGED = re.compile(r".*:[\w][\w.-]{0,127}")


def parsers(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        for name in ("reasoning-parser", "tool-call-parser"):
            value = flags_of(profile, pool).get(name)
            if value not in ("kimi_k3", "auto"):
                yield Fault(
                    f"{name} must be K3's",
                    f"write `{name}: kimi_k3`",
                    path=flag_path(path, pool, name),
                    found="not set" if value is None else shown(value),
                    wanted="kimi_k3",
                    why="the engine accepts others, such as kimi_k2; then thinking appears in the answer, and tool "
                    "calls stay text",
                )


def owned_flags(profile: Profile) -> Iterator[Fault]:
    for path, _ in _written_flags(profile):
        name = _bare(str(path[-1]))
        if name in OWNED_FLAGS:
            yield Fault(
                f"{name} is not set by hand",
                f"remove it; it comes from {OWNED_FLAGS[name]}",
                path=path,
            )


def owned_variables(profile: Profile) -> Iterator[Fault]:
    for path, _ in _written_variables(profile):
        name = str(path[-1])
        if name in OWNED_ENV:
            yield Fault(f"{name} is not set by hand", f"remove it; it comes from {OWNED_ENV[name]}", path=path)
        elif not _VARIABLE.fullmatch(name):
            fix = "use letters, digits and _"
            yield Fault("this is no name of an environment variable", fix, path=path, found=shown(name))


def flag_spelling(profile: Profile) -> Iterator[Fault]:
    for path, value in _written_flags(profile):
        name = str(path[-1])
        if name != _bare(name):
            fix = f"write `{_bare(name)}`"
            yield Fault("a flag is written without leading dashes, with - inside", fix, path=path, found=shown(name))
        elif value == []:
            fix = "give it values, or null to leave it out"
            yield Fault(f"{name} has an empty list", fix, path=path)


def version_range(profile: Profile) -> Iterator[Fault]:
    try:
        VersionRange.parse(profile.engine.versions)
    except ValueError:
        yield Fault(
            "`versions` is not a range",
            "write it like: >=0.5.17,<0.6",
            path=("engine", "versions"),
            found=shown(profile.engine.versions),
            wanted="clauses of >= > <= < == != with a version, separated by commas",
        )


def image_has_tag(profile: Profile) -> Iterator[Fault]:
    if not _TAGGED.fullmatch(profile.engine.image.rpartition("/")[2]):
        yield Fault(
            "the image has no tag",
            f"write {profile.engine.image}:TAG",
            path=("engine", "image"),
            found=shown(profile.engine.image),
            wanted="repository:tag",
            why="without one Docker takes `latest`, which is whatever was pushed last",
        )


def served_name(profile: Profile) -> Iterator[Fault]:
    name = profile.model.served_name
    if name is None:
        return
    if profile.engine.launch_by == "name":
        yield Fault(
            "served_name is only for a launch by path",
            "remove it, or set engine.launch_by: path",
            path=("model", "served_name"),
            found=shown(name),
            why="launched by name, the engine serves the model under that name",
        )
    if ":" in name:
        yield Fault(
            "served_name cannot hold a colon",
            "use another character",
            path=("model", "served_name"),
            found=shown(name),
            why="the engine keeps it for model:adapter and stops",
        )


def shm_size(profile: Profile) -> Iterator[Fault]:
    if not _SHM_SIZE.fullmatch(profile.engine.shm_size):
        yield Fault(
            "`shm_size` is no size",
            "write it like 32g",
            path=("engine", "shm_size"),
            found=shown(profile.engine.shm_size),
            wanted="digits and one of b, k, m, g",
        )


ENGINE_RULES = (
    Rule("parsers", Level.ERROR, parsers),
    Rule("owned-flags", Level.ERROR, owned_flags),
    Rule("owned-variables", Level.ERROR, owned_variables),
    Rule("flag-spelling", Level.ERROR, flag_spelling),
    Rule("version-range", Level.ERROR, version_range),
    Rule("image-has-tag", Level.ERROR, image_has_tag),
    Rule("served-name", Level.ERROR, served_name),
    Rule("shm-size", Level.ERROR, shm_size),
)


def option_rules(lists: OptionLists) -> tuple[Rule, ...]:
    """Rules that need the engine's option lists: the newest release that the profile allows is the yardstick."""

    def known(profile: Profile) -> Iterator[Fault]:
        yield from (fault for fault in _option_faults(profile, lists) if fault.level is Level.ERROR)

    def deprecated(profile: Profile) -> Iterator[Fault]:
        yield from (fault for fault in _option_faults(profile, lists) if fault.level is Level.WARNING)

    return (
        Rule("options-known", Level.ERROR, known),
        Rule("options-deprecated", Level.WARNING, deprecated),
    )


def _option_faults(profile: Profile, lists: OptionLists) -> Iterator[Fault]:
    try:
        allowed = VersionRange.parse(profile.engine.versions)
    except ValueError:
        return
    options = lists.newest_in(allowed)
    if options is None:
        yield Fault(
            f"no option list of {profile.engine.name} {profile.engine.versions}: flags are unchecked",
            "read the flags again, or allow a release that has a list",
            path=("engine", "versions"),
            wanted=f"one of {', '.join(sorted(lists.lists)) or 'none'}",
            level=Level.WARNING,
        )
        return
    for path, value in _written_flags(profile):
        name = str(path[-1])
        words = None if value == [] or name != _bare(name) or name in OWNED_FLAGS else launch_flags.words(value)
        problem = None if words is None else options.problem(f"--{name}", words)
        if problem is not None:
            level = Level.WARNING if problem.is_warning else Level.ERROR
            yield Fault(problem.what, problem.fix, path=path, found=problem.found, wanted=problem.wanted, level=level)


def _written_flags(profile: Profile) -> Iterator[tuple[Path, FlagValue]]:
    for name, value in profile.engine.flags.items():
        yield ("engine", "flags", name), value
    for path, pool in pools(profile):
        for name, value in pool.flags.items():
            yield (*path, "flags", name), value


def _written_variables(profile: Profile) -> Iterator[tuple[Path, str]]:
    for name, value in profile.engine.env.items():
        yield ("engine", "env", name), value
    for path, pool in pools(profile):
        for name, value in pool.env.items():
            yield (*path, "env", name), value


def _bare(name: str) -> str:
    return name.lstrip("-").replace("_", "-")
