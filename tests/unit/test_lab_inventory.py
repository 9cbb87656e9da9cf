"""The comparison of inventories sees every kind of leftover."""

from tests.lab.inventory import difference

BEFORE = {
    "files": {"/etc/a": {"mode": "-rw-r--r--", "sha256": "1"}, "/etc/b": {"mode": "-rw-r--r--"}},
    "docker": {"images": ["x"], "root": ["/var/lib/docker"]},
    "users": ["root"],
}
AFTER = {
    "files": {"/etc/a": {"mode": "-rw-------", "sha256": "2"}, "/etc/c": {"mode": "-rw-r--r--"}},
    "docker": {"images": ["x", "y"], "root": ["/ephemeral/docker"]},
    "users": ["root", "k3"],
}


def test_every_kind_of_change_is_one_line() -> None:
    assert difference(BEFORE, AFTER) == [
        "docker/images + y",
        "docker/root - /var/lib/docker",
        "docker/root + /ephemeral/docker",
        "files ~ /etc/a: mode, sha256",
        "files - /etc/b",
        "files + /etc/c",
        "users + k3",
    ]


def test_what_is_allowed_is_left_out_and_nothing_else() -> None:
    left = difference(BEFORE, AFTER, ("files + /etc/*", "docker/*"))
    assert left == ["files ~ /etc/a: mode, sha256", "files - /etc/b", "users + k3"]
    assert difference(BEFORE, BEFORE) == []
