"""Docker's daemon.json: what we set is set, everything else stays, and what is no JSON is not touched."""

import json

import pytest

from k3deploy.domain.daemon_json import merge, value_of
from k3deploy.domain.errors import NodeError

PATH = "/etc/docker/daemon.json"
ROOT = {"data-root": "/mnt/nvme/docker"}


def test_f037_other_keys_stay_in_their_order() -> None:
    old = (
        b'{"default-runtime":"nvidia","runtimes":{"nvidia":{"path":"nvidia-container-runtime","args":[]}},'
        b'"log-opts":{"max-size":"50m"},"mtu":1450}'
    )
    merged = merge(old, ROOT, path=PATH)
    assert json.loads(merged.text) == {
        "default-runtime": "nvidia",
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
        "log-opts": {"max-size": "50m"},
        "mtu": 1450,
        "data-root": "/mnt/nvme/docker",
    }
    assert list(json.loads(merged.text)) == ["default-runtime", "runtimes", "log-opts", "mtu", "data-root"]
    assert merged.notes == ("4 other keys kept",)


def test_what_is_right_already_keeps_its_very_text() -> None:
    old = b'{ "data-root" :"/mnt/nvme/docker" }'
    merged = merge(old, ROOT, path=PATH)
    assert (merged.text, merged.is_changed, merged.notes) == (old.decode(), False, ())


def test_no_file_and_an_empty_one_get_our_key_alone() -> None:
    for old, notes in ((None, ()), (b"", (f"{PATH} was empty",)), (b" \n", (f"{PATH} was empty",))):
        merged = merge(old, ROOT, path=PATH)
        assert json.loads(merged.text) == ROOT
        assert merged.is_changed
        assert merged.notes == notes


def test_f038_a_byte_order_mark_goes_and_the_setting_stays() -> None:
    merged = merge('\ufeff{"mtu":1450}'.encode(), ROOT, path=PATH)
    assert not merged.text.startswith("\ufeff")
    assert json.loads(merged.text) == {"mtu": 1450, **ROOT}
    assert merged.notes[0] == f"{PATH} began with a byte order mark, which is removed"


def test_a_mark_alone_is_worth_a_write() -> None:
    assert merge('\ufeff{"data-root":"/mnt/nvme/docker"}'.encode(), ROOT, path=PATH).is_changed


def test_objects_are_merged_and_other_values_replaced() -> None:
    old = b'{"features": {"buildkit": true}, "data-root": "/data"}'
    merged = merge(old, {**ROOT, "features": {"containerd-snapshotter": False}}, path=PATH)
    assert json.loads(merged.text) == {
        "features": {"buildkit": True, "containerd-snapshotter": False},
        "data-root": "/mnt/nvme/docker",
    }
    assert merged.notes == ('data-root was "/data"',)


@pytest.mark.parametrize(
    ("old", "found"),
    [
        (b'{"data-root": "/x",}', "a comma with nothing after it"),
        (b'{"a": [1, 2,]}', "a comma with nothing after it"),
        (b'{\n  "mtu": 1450, // office\n  "a": 1\n}', "line 2, column 16: a comment, which JSON does not have"),
        (b'# by hand\n{"mtu": 1450}', "line 1, column 1: a comment, which JSON does not have"),
        (b'["a"]', "it holds a list, not an object"),
        (b'{"mtu": 1, "mtu": 2}', "the key 'mtu' is there twice"),
        (b'{"mtu": 1450', "line 1, column 13"),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
    ],
)
def test_f038_what_is_no_json_object_is_refused_with_its_place(old: bytes, found: str) -> None:
    with pytest.raises(NodeError) as error:
        merge(old, ROOT, path=PATH)
    assert found in str(error.value.context["found"])
    assert error.value.context["path"] == PATH
    assert error.value.fix


def test_one_value_is_read_without_changing_anything() -> None:
    assert value_of(b'{"features": {"x": true}}', "features", path=PATH) == {"x": True}
    assert value_of(b"{}", "graph", path=PATH) is None
    assert value_of(None, "graph", path=PATH) is None
