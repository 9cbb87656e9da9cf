"""What a share is asked for, and how a node that asks shows who it is."""

import http.client
from typing import NamedTuple

BLOBS = "/b/"  # and the sha256
REPORT = "/v1/report"
STATE = "/v1/state"
END = "/v1/end"

_METHODS = {REPORT: "POST", STATE: "GET", END: "POST"}


def method_of(path: str) -> str:
    return _METHODS.get(path, "GET")


class Me(NamedTuple):
    """How this node shows itself to the shares of others: by its private address and the run's token."""

    address: str
    token: str

    def connection(self, address: str, port: int, connect_s: float) -> http.client.HTTPConnection:
        """From the private address, as others know this node by it: the kernel might choose another one."""
        return http.client.HTTPConnection(address, port, connect_s, (self.address, 0))

    @property
    def authorization(self) -> str:
        """The header of that name, in every request."""
        return "Bearer " + self.token
