"""Whatever a file holds, loading gives a profile or a ProfileError; a profile that loads survives its own lock."""

import copy
import json
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3deploy.adapters import engines, profiles
from k3deploy.domain import nodes_file, yaml_text
from k3deploy.domain.errors import ProfileError
from k3deploy.domain.profile import loader, lock
from k3deploy.domain.profile.annotated import annotated
from k3deploy.domain.profile.models import Profile

_LISTS = engines.option_lists("sglang")
_BASE: dict[str, Any] = profiles.load_profile("h100x32").model_dump(mode="json", by_alias=True)
_DOCUMENT = yaml_text.read(lock.text_of(_BASE).encode(), "f.yaml")

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates()
    | st.binary(max_size=8)
    | st.sampled_from(["yes", "kimi_k3", "1e5", "/x", "10.0.0.0/8", ">=1", "hf_abcdefghijklmnopqrst", "-"])
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [inner for key, item in items for inner in _paths(item, (*path, key))]


def _yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), allow_unicode=True)


def _is_told(load: Callable[[], object]) -> bool:
    """Whether loading succeeds, or fails in words that say what and what to do. Anything else is raised."""
    try:
        load()
    except ProfileError as error:
        return bool(error.what and error.fix)
    return True


def _load(text: str) -> Profile | None:
    found: list[Profile] = []
    document = text.encode("utf-8", "surrogatepass")
    assert _is_told(lambda: found.append(loader.load([yaml_text.read(document, "f.yaml")], _LISTS).profile))
    return found[0] if found else None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_any_text(text: str) -> None:
    _load(text)


@settings(max_examples=150, deadline=None)
@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    assert _is_told(lambda: yaml_text.read(data, "f.yaml"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(_paths(_BASE)), _VALUES)
def test_any_value_in_any_place(path: tuple[str | int, ...], value: Any) -> None:
    body = copy.deepcopy(_BASE)
    target: Any = body
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    profile = _load(_yaml(body))
    if profile is not None:
        _check_round_trip(profile)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    flags=st.dictionaries(
        st.sampled_from(["page-size", "log-level", "enable-metrics", "model-loader-extra-config", "dist-timeout"]),
        st.booleans() | st.integers(-(10**24), 10**24) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    ),
    env=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text()),
    description=st.text() | st.text("\x85\u2028\u2029\ufeff\t\r\n :#-'\"\\ü", max_size=6),
)
def test_a_lock_is_the_same_profile(flags: dict[str, Any], env: dict[str, str], description: str) -> None:
    profile = Profile.model_validate_json(
        json.dumps({**_BASE, "description": description, "engine": {**_BASE["engine"], "flags": flags, "env": env}})
    )
    text = lock.dump(profile)
    assert yaml_text.read(text.encode(), "lock").value == profile.model_dump(mode="json", by_alias=True)


def _check_round_trip(profile: Profile) -> None:
    assert profiles.profile_from_lock(lock.dump(profile)) == profile
    assert profiles.profile_from_lock(annotated(profile, {"name": "f.yaml:1"})) == profile


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(st.sampled_from([*"abc", "name", "address", "port", "rank", "pool"]), _VALUES)))
def test_any_nodes_file(entries: list[dict[str, Any]]) -> None:
    data = _yaml({"nodes": entries}).encode("utf-8", "surrogatepass")
    assert _is_told(lambda: nodes_file.load(yaml_text.read(data, "nodes.yaml")))


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text())
def test_any_assignment(path: str, value: str) -> None:
    assert _is_told(lambda: loader.load([_DOCUMENT], _LISTS, [f"{path}={value}"]))
