"""How much of the weights a proof reads. The values are the levels of `remote/hashing.py`."""

from enum import StrEnum


class ProofLevel(StrEnum):
    step: str

    def __new__(cls, value: str, step: str) -> "ProofLevel":
        member = str.__new__(cls, value)
        member._value_ = value
        member.step = step
        return member

    QUICK = "quick", "look at sizes, links, headers and index"
    KNOWN = "resume", "hash what no earlier proof covers"
    ANEW = "full", "hash everything, from the disk"
