"""From documents to a complete, frozen profile: merge layers, check shape, then rules; keep sources and warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k3deploy.domain.faults import Fault, Path, path_text, raise_if_any
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.profile import layers, rules, shape
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.yaml_text import Document


@dataclass(frozen=True)
class LoadedProfile:
    """`sources` maps each path ("engine.flags.dist-timeout") to "file:line", "--set ..." or "default"."""

    profile: Profile
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Fault, ...] = ()


def load(documents: Sequence[Document], option_lists: OptionLists, settings: Sequence[str] = ()) -> LoadedProfile:
    """Build a profile from its file (last) and the files it extends (before), with `--set` assignments on top.

    Raises ProfileError for one fault, ProfileFaults for several: shape first, since rules need a whole profile.
    """
    where = documents[-1].name
    merged = layers.merge(documents)
    written = [fault for document in documents for fault in document.faults]
    assigned = [fault for setting in settings if (fault := layers.assign(merged, setting)) is not None]
    at = _Locator(merged, documents[-1])
    profile, misshapen = shape.build(Profile, merged.value, at, where)
    told = {fault.path for fault in written}
    raise_if_any([*written, *assigned, *(fault for fault in misshapen if fault.path not in told)], where)
    assert profile is not None  # noqa: S101 - shape.build gives a profile or faults
    findings = rules.check(profile, option_lists, at)
    raise_if_any(findings, where)
    dumped: dict[str, Any] = profile.model_dump(mode="json", by_alias=True)
    sources = {path_text(path): merged.sources.get(path, layers.DEFAULT) for path in _paths(dumped, ())}
    return LoadedProfile(profile, sources, tuple(findings))


def load_lock(document: Document) -> Profile:
    """A profile that a run has used. Its shape is checked, the rules are not: a run that was begun under older rules
    must still be shown, resumed and torn down. Raises ProfileError or ProfileFaults.
    """
    profile, misshapen = shape.build(Profile, document.value, document.at, document.name)
    raise_if_any([*document.faults, *misshapen], document.name)
    assert profile is not None  # noqa: S101 - shape.build gives a profile or faults
    return profile


@dataclass(frozen=True)
class _Locator:
    """Where a path was written; for a missing one, the nearest thing around it; at last the file's first line."""

    merged: layers.Merged
    document: Document

    def __call__(self, path: Path) -> str:
        return self.merged.nearest_source(path) or f"{self.document.name}:1"


def _paths(value: Any, path: Path) -> list[Path]:
    if isinstance(value, dict) and value:
        return [inner for key, item in value.items() for inner in _paths(item, (*path, key))]
    if isinstance(value, list) and value:
        return [inner for index, item in enumerate(value) for inner in _paths(item, (*path, index))]
    return [path]
