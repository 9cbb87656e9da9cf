"""Names and numbers that must not be mixed up: one NewType for each meaning."""

from typing import NewType

NodeName = NewType("NodeName", str)  # a machine we reach by SSH, as nodes.yaml calls it
PoolName = NewType("PoolName", str)
ReplicaName = NewType("ReplicaName", str)  # "<pool>-<index>", e.g. serve-0
PhaseName = NewType("PhaseName", str)  # "weights-fetch": CLI, events and store key
RunId = NewType("RunId", str)  # "<profile>-<YYYYmmdd-HHMMSS>-<4 hex>"
NodeRank = NewType("NodeRank", int)  # index of a node within its replica
TpRank = NewType("TpRank", int)  # index of a GPU process within its replica
Commit = NewType("Commit", str)  # 40 hex digits: a revision of the model repository
Sha256 = NewType("Sha256", str)  # 64 hex digits
InputsDigest = NewType("InputsDigest", str)  # what would make an old result worthless, hashed
