"""The lab's own side of its Hub, asked from the machine: what it has served, and what it is told to do wrong."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from tests.lab.kernel import in_netns
from tests.lab.naming import CONTROL_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.lab.lab import Lab

_TIMEOUT_S = 10.0


class HubControl:
    """Of a lab's Hub, or of its mirror."""

    def __init__(self, lab: Lab, service: str = "hub") -> None:
        self._netns = lab.names.control_netns
        self._port = lab.service(service).port

    def stats(self) -> dict[str, Any]:
        """See hub_stats."""
        return self._ask("GET", "stats")

    def reset(self) -> None:
        """Count from nothing."""
        self._ask("DELETE", "stats")

    def fault(self, document: Mapping[str, object]) -> None:
        """See hub_faults; {} ends all trouble."""
        self._ask("POST", "faults", document)

    def _ask(self, method: str, what: str, body: object = None) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            connection = http.client.HTTPConnection(str(CONTROL_ADDRESS), self._port, timeout=_TIMEOUT_S)
            try:
                connection.request(method, f"/__lab__/{what}", json.dumps(body) if body is not None else None)
                response = connection.getresponse()
                found: dict[str, Any] = json.loads(response.read())
            finally:
                connection.close()
            assert response.status == http.client.OK, found
            return found

        return in_netns(self._netns, ask)
