"""For any daemon.json: merging keeps every key that is not ours, and doing it twice changes nothing more."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from k3deploy.domain.daemon_json import merge

OURS = {"data-root": "/nvme/docker", "features": {"containerd-snapshotter": False}}
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
files = st.dictionaries(st.text(max_size=12) | st.sampled_from(sorted(OURS)), values, max_size=6)


@given(files)
def test_foreign_keys_stay_ours_are_set_and_twice_is_once(body: dict[str, Any]) -> None:
    old = json.dumps(body).encode()
    merged = merge(old, OURS, path="/etc/docker/daemon.json")
    result = json.loads(merged.text)
    assert {name: value for name, value in result.items() if name not in OURS} == {
        name: value for name, value in body.items() if name not in OURS
    }
    assert result["data-root"] == "/nvme/docker"
    assert result["features"]["containerd-snapshotter"] is False
    if isinstance(body.get("features"), dict):
        kept = {name: value for name, value in body["features"].items() if name != "containerd-snapshotter"}
        assert {name: result["features"][name] for name in kept} == kept
    again = merge(merged.text.encode(), OURS, path="/etc/docker/daemon.json")
    assert (again.text, again.is_changed) == (merged.text, False)
