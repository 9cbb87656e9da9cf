"""What unfinished files among the blobs are called, so that each kind of transfer knows its own."""

from k3deploy.remote.hub_cache import INCOMPLETE

# Ours: one for each blob, written from front to back, so that whoever finds it can go on at its end.
RESUMABLE = ".k3deploy" + INCOMPLETE


def resumable(digest: str) -> str:
    return digest + RESUMABLE


def is_resumable(name: str) -> bool:
    return name.endswith(RESUMABLE)


def digest_of(name: str) -> str:
    """The blob that an unfinished file is to become."""
    return name.partition(".")[0]
