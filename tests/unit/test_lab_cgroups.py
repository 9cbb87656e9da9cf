"""Where cgroup2 is mounted, from the text of /proc/self/mountinfo of each kind of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.cgroups import cgroup2_mount
from tests.lab.errors import LabError

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw"
PLAIN = "30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate"
V1_TMPFS = "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755"
V1_MEMORY = "31 30 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory"
HYBRID = "32 30 0:28 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw"
ELSEWHERE = "33 24 0:28 / /mnt/some\\040place rw - cgroup2 none rw"


def text(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def test_plain() -> None:
    assert cgroup2_mount(text(ROOT, PLAIN)) == Path("/sys/fs/cgroup")


def test_hybrid() -> None:
    assert cgroup2_mount(text(ROOT, V1_TMPFS, V1_MEMORY, HYBRID)) == Path("/sys/fs/cgroup/unified")


def test_the_standard_place_wins() -> None:
    assert cgroup2_mount(text(ROOT, ELSEWHERE, PLAIN)) == Path("/sys/fs/cgroup")


def test_any_other_place_will_do() -> None:
    assert cgroup2_mount(text(ROOT, V1_TMPFS, ELSEWHERE)) == Path("/mnt/some place")


def test_version_1_alone_is_refused_with_a_way_out() -> None:
    with pytest.raises(LabError, match="no cgroup2") as refused:
        cgroup2_mount(text(ROOT, V1_TMPFS, V1_MEMORY))
    assert "mount -t cgroup2" in refused.value.fix
