"""Layers: what wins, what is taken away, what is not inherited, and where each value came from."""

from k3deploy.domain import yaml_text
from k3deploy.domain.profile import layers

_PARENT = yaml_text.read(
    b"""\
name: parent
description: p
provenance: {source: s, verified_by: somebody}
engine:
  flags:
    a: 1
    b: 2
  env: {X: "1"}
pools:
  - name: one
  - name: two
""",
    "parent.yaml",
)
_CHILD = yaml_text.read(
    b"""\
extends: parent
name: child
engine:
  flags:
    b: 3
    a: null
    c: true
pools:
  - name: three
""",
    "child.yaml",
)


def test_maps_are_merged_lists_and_scalars_replaced_null_takes_away() -> None:
    merged = layers.merge([_PARENT, _CHILD])
    assert merged.value == {
        "name": "child",
        "engine": {"flags": {"b": 3, "c": True}, "env": {"X": "1"}},
        "pools": [{"name": "three"}],
    }


def test_sources() -> None:
    merged = layers.merge([_PARENT, _CHILD])
    assert merged.sources[("engine", "flags", "b")] == "child.yaml:5"
    assert merged.sources[("engine", "env", "X")] == "parent.yaml:8"
    assert merged.sources[("pools", 0, "name")] == "child.yaml:9"
    assert ("pools", 1, "name") not in merged.sources
    assert ("engine", "flags", "a") not in merged.sources
    assert merged.nearest_source(("engine", "flags", "a")) == "child.yaml:4"
    assert merged.nearest_source(("network", "api")) is None


def test_assignments() -> None:
    merged = layers.merge([_PARENT, _CHILD])
    for setting in ("engine.flags.b=0.5", "pools[0].name=four", "network.api=public", "engine.env.X=null"):
        assert layers.assign(merged, setting) is None
    assert merged.value["engine"] == {"flags": {"b": 0.5, "c": True}, "env": {}}
    assert merged.value["pools"] == [{"name": "four"}]
    assert merged.value["network"] == {"api": "public"}
    assert merged.sources[("engine", "flags", "b")] == "--set engine.flags.b"


def test_assigning_a_map_gives_every_value_below_its_source() -> None:
    merged = layers.merge([_PARENT])
    assert layers.assign(merged, "engine.flags={x: 1, y: [2]}") is None
    assert merged.value["engine"]["flags"] == {"x": 1, "y": [2]}
    assert merged.sources[("engine", "flags", "y", 0)] == "--set engine.flags"
    assert ("engine", "flags", "a") not in merged.sources


def test_documents_are_not_changed_by_merging_and_assigning() -> None:
    merged = layers.merge([_PARENT, _CHILD])
    assert layers.assign(merged, "pools[0].name=four") is None
    assert _PARENT.value["engine"]["flags"] == {"a": 1, "b": 2}
    assert _CHILD.value["pools"] == [{"name": "three"}]
