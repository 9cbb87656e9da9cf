"""What a share is asked for, and how whoever asks shows that it belongs to the run."""

BLOBS = "/b/"  # and the sha256
REPORT = "/v1/report"
STATE = "/v1/state"
END = "/v1/end"

_METHODS = {REPORT: "POST", STATE: "GET", END: "POST"}


def method_of(path: str) -> str:
    return _METHODS.get(path, "GET")


def authorization(token: str) -> str:
    """The header of that name, in every request."""
    return "Bearer " + token
