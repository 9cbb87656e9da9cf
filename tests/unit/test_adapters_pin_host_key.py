"""A host key is written into a nodes file, and nothing else in it changes."""

import pytest

from k3deploy.adapters.pin_host_key import pin_host_key

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA0LoUtLQ41adCKmTJBF+Sp+YZRgVeYoYBq0HsZgkgsh"

BEFORE = """\
# our four machines
nodes:
  - name: gpu-00   # the head
    address: 192.0.2.10  # ours until Friday
    user: ubuntu

  - name: gpu-01
    host_key: ssh-ed25519 OLD= # of May
    address: 192.0.2.11
  - {name: gpu-02, address: 192.0.2.12}
  - {name: gpu-03, address: 192.0.2.13, host_key: "ssh-rsa OLD"}  # last
  - name: gpu-04
    host_key:
    address: 192.0.2.14
  - address: "192.0.2.15"
    name: gpu-05"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gpu-00", "until Friday\n", f"until Friday\n    host_key: {KEY}\n"),
        ("gpu-01", "ssh-ed25519 OLD= # of May", f"{KEY} # of May"),
        ("gpu-02", "192.0.2.12}", f"192.0.2.12, host_key: {KEY}}}"),
        ("gpu-03", '"ssh-rsa OLD"', KEY),
        ("gpu-04", "host_key:\n", f"host_key: {KEY}\n"),
        ("gpu-05", '"192.0.2.15"\n', f'"192.0.2.15"\n    host_key: {KEY}\n'),
    ],
)
def test_one_place_changes(name: str, old: str, new: str) -> None:
    assert BEFORE.count(old) == 1
    assert pin_host_key(BEFORE, name, KEY) == BEFORE.replace(old, new)


def test_the_last_line_may_lack_its_end() -> None:
    text = "nodes:\n- name: a\n  address: b"
    assert pin_host_key(text, "a", KEY) == f"nodes:\n- name: a\n  address: b\n  host_key: {KEY}"


def test_pinning_twice_is_pinning_once() -> None:
    once = pin_host_key(BEFORE, "gpu-00", KEY)
    assert pin_host_key(once, "gpu-00", KEY) == once


@pytest.mark.parametrize("text", ["nodes: []", "[]", "nodes:\n  - name: b\n    address: c\n", ""])
def test_a_node_that_is_not_there_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="no node a"):
        pin_host_key(text, "a", KEY)


def test_what_cannot_be_changed_in_one_place_is_refused() -> None:
    """A key over several lines."""
    text = "nodes:\n  - name: a\n    host_key: |\n      ssh-ed25519 OLD\n    address: b\n"
    with pytest.raises(ValueError, match="cannot be changed in one place"):
        pin_host_key(text, "a", KEY)
