"""Servers that several contract suites share."""

from collections.abc import Iterator

import pytest

from tests.contract import sshd
from tests.contract.sshd import Sshd


@pytest.fixture(scope="session")
def needs_sshd() -> None:
    if sshd.sshd_path() is None:
        pytest.skip("no sshd: install openssh-server")


@pytest.fixture(scope="session")
def server(needs_sshd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as running:
        yield running
