"""One resolved launch: the options that decide which ranks run here and what they hold."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One GPU's scheduler on this node, with the tag its log lines carry."""

    gpu: int
    tp_rank: int
    pp_rank: int
    tag: str


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Sizes after resolution: `--enable-dp-attention --dp-size N` has become `--attn-dp-size N`."""

    args: argparse.Namespace
    version: str
    tp_size: int
    pp_size: int
    attn_dp_size: int
    ep_size: int
    dcp_size: int
    nnodes: int
    node_rank: int
    has_draft: bool

    @property
    def attention_tp(self) -> int:
        """Ranks that share one attention layer."""
        return self.tp_size // self.attn_dp_size

    @property
    def world_size(self) -> int:
        """All ranks of the replica."""
        return self.tp_size * self.pp_size

    @property
    def served_model_name(self) -> str:
        """The id clients see."""
        return str(self.args.served_model_name or self.args.model_path)

    @property
    def dist_timeout_s(self) -> float:
        """How long a collective waits; torch's own default is ten minutes."""
        return float(self.args.dist_timeout or 600)

    def ranks(self) -> list[Rank]:
        """The ranks of this node, one per GPU."""
        pp_per_node = max(self.pp_size // self.nnodes, 1)
        nodes_per_stage = max(self.nnodes // self.pp_size, 1)
        tp_per_node = self.tp_size // nodes_per_stage
        first_pp = pp_per_node * (self.node_rank // nodes_per_stage)
        first_tp = tp_per_node * (self.node_rank % nodes_per_stage)
        places = [
            (pp_rank, tp_rank)
            for pp_rank in range(first_pp, first_pp + pp_per_node)
            for tp_rank in range(first_tp, first_tp + tp_per_node)
        ]
        return [
            Rank(gpu=gpu, tp_rank=tp_rank, pp_rank=pp_rank, tag=self._tag(tp_rank, pp_rank))
            for gpu, (pp_rank, tp_rank) in enumerate(places)
        ]

    def _tag(self, tp_rank: int, pp_rank: int) -> str:
        parts = []
        if self.attn_dp_size > 1:
            parts.append(f"DP{tp_rank // self.attention_tp}")
        if self.pp_size > 1:
            parts.append(f"PP{pp_rank}")
        if self.tp_size > 1:
            parts.append(f"TP{tp_rank}")
        if self.ep_size > 1:
            parts.append(f"EP{tp_rank // (self.tp_size // self.ep_size)}")
        return " ".join(parts)


def resolve(args: argparse.Namespace, version: str) -> Launch:
    """The sizes that the engine derives from its options."""
    attn_dp = getattr(args, "attn_dp_size", 1)
    if args.enable_dp_attention and attn_dp == 1:
        attn_dp = args.dp_size
    ep = args.ep_size
    if args.moe_a2a_backend != "none":
        ep = args.tp_size
    return Launch(
        args=args,
        version=version,
        tp_size=args.tp_size,
        pp_size=args.pp_size,
        attn_dp_size=attn_dp,
        ep_size=ep,
        dcp_size=args.dcp_size,
        nnodes=args.nnodes,
        node_rank=args.node_rank,
        has_draft=args.speculative_algorithm is not None,
    )
