"""Rules about parallel sizes, and about options that cannot go together with them. Facts: SGLang 0.5.23."""

import math
from collections.abc import Iterator

from k3deploy.domain.faults import Fault, Level
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.profile.rule import Rule, flag_path, flags_of, is_on, parallel_path, pools
from k3deploy.domain.versions import Version, VersionRange

# Releases of SGLang that serve K3 but do not know --attn-dp-size yet.
_WITHOUT_ATTENTION_DATA = ("0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21")


def gpus_equal_world(profile: Profile) -> Iterator[Fault]:
    per_node = profile.hardware.gpus_per_node
    for path, pool in pools(profile):
        sizes = pool.replicas.parallel
        world = sizes.tensor * sizes.pipeline
        gpus = pool.replicas.nodes_each * per_node
        if gpus != world:
            yield Fault(
                f"pool {pool.name} has {gpus} GPUs in each replica, but tensor * pipeline is {world}",
                f"make nodes_each {world // per_node}"
                if world % per_node == 0
                else "change nodes_each or the parallel sizes",
                path=(*path, "replicas", "nodes_each"),
                found=f"{pool.replicas.nodes_each} nodes * {per_node} GPUs = {gpus}",
                wanted=f"{sizes.tensor} * {sizes.pipeline} = {world}",
            )


def tensor_divides(profile: Profile) -> Iterator[Fault]:
    geometry = profile.model.geometry
    limit = math.gcd(geometry.attention_heads, geometry.hidden_size, geometry.vocabulary)
    for path, pool in pools(profile):
        sizes = pool.replicas.parallel
        if sizes.attention_data == 1 and limit % sizes.tensor:
            allowed = [size for size in range(1, limit + 1) if limit % size == 0]
            yield Fault(
                f"tensor {sizes.tensor} cannot divide this model",
                "take one of these sizes; more nodes cannot lower the weights on each GPU",
                path=parallel_path(path, "tensor"),
                found=str(sizes.tensor),
                wanted=f"one of {', '.join(map(str, allowed))}",
                why=f"it must divide gcd({geometry.attention_heads} heads, {geometry.hidden_size} hidden, "
                f"{geometry.vocabulary} vocabulary) = {limit}",
            )


def attention_divides(profile: Profile) -> Iterator[Fault]:
    heads = profile.model.geometry.attention_heads
    for path, pool in pools(profile):
        sizes = pool.replicas.parallel
        if sizes.attention_data == 1:
            continue  # tensor_divides says it
        width, rest = divmod(sizes.tensor, sizes.attention_data)
        if rest or heads % width:
            yield Fault(
                f"attention_data {sizes.attention_data} does not fit tensor {sizes.tensor}",
                "choose sizes so that the attention width divides the heads",
                path=parallel_path(path, "attention_data"),
                found=f"{sizes.tensor} / {sizes.attention_data}",
                wanted=f"a whole number that divides {heads} heads",
            )


def expert_divides(profile: Profile) -> Iterator[Fault]:
    experts = profile.model.geometry.routed_experts
    for path, pool in pools(profile):
        sizes = pool.replicas.parallel
        here = parallel_path(path, "expert")
        if experts % sizes.expert or sizes.tensor % sizes.expert:
            yield Fault(
                f"expert {sizes.expert} must divide tensor {sizes.tensor} and the {experts} experts",
                f"make it {math.gcd(sizes.tensor, experts)}, or 1 for none",
                path=here,
                found=str(sizes.expert),
                wanted=f"a divisor of {math.gcd(sizes.tensor, experts)}",
            )
            continue
        backend = flags_of(profile, pool).get("moe-a2a-backend", "none")
        if backend != "none" and sizes.expert != sizes.tensor:
            yield Fault(
                f"moe-a2a-backend {backend} needs expert equal to tensor",
                f"make expert {sizes.tensor}",
                path=here,
                found=str(sizes.expert),
                wanted=str(sizes.tensor),
            )


def decode_context_divides(profile: Profile) -> Iterator[Fault]:
    heads = profile.model.geometry.attention_heads
    for path, pool in pools(profile):
        sizes = pool.replicas.parallel
        width = sizes.tensor // sizes.attention_data
        if sizes.decode_context > 1 and (width % sizes.decode_context or heads % sizes.decode_context):
            yield Fault(
                f"decode_context {sizes.decode_context} must divide the attention width and the {heads} heads",
                f"make it a divisor of {math.gcd(width, heads)}, or 1 for none",
                path=parallel_path(path, "decode_context"),
                found=str(sizes.decode_context),
                wanted=f"a divisor of {math.gcd(width, heads)}",
            )


def attention_data_needs_release(profile: Profile) -> Iterator[Fault]:
    try:
        allowed = VersionRange.parse(profile.engine.versions)
    except ValueError:
        return  # another rule says it
    too_old = [text for text in _WITHOUT_ATTENTION_DATA if Version.parse(text) in allowed]
    for path, pool in pools(profile):
        if pool.replicas.parallel.attention_data > 1 and too_old:
            yield Fault(
                "attention_data needs sglang 0.5.22 or newer",
                "make engine.versions begin with >=0.5.22",
                path=parallel_path(path, "attention_data"),
                found=f"versions {profile.engine.versions} allow {too_old[-1]}",
                wanted=">=0.5.22",
            )


def decode_context_on_hopper(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        backend = flags_of(profile, pool).get("decode-attention-backend")
        is_striped = pool.replicas.parallel.decode_context > 1
        if profile.hardware.gpu.architecture == "hopper" and is_striped and backend not in ("cutedsl_mla", "aiter"):
            yield Fault(
                "decode_context does not work on Hopper with this attention backend",
                "make decode_context 1",
                path=parallel_path(path, "decode_context"),
                found=f"decode-attention-backend {backend or 'not set'}",
                wanted="cutedsl_mla or aiter",
                why="flashmla stops with an assertion once the weights are loaded",
            )


def symmetric_memory_with_decode_context(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        if pool.replicas.parallel.decode_context > 1 and is_on(flags_of(profile, pool).get("enable-symm-mem")):
            yield Fault(
                "enable-symm-mem does nothing together with decode_context",
                "leave it out",
                path=flag_path(path, pool, "enable-symm-mem"),
            )


def lazy_buffer(profile: Profile) -> Iterator[Fault]:
    name = "mamba-radix-cache-strategy"
    for path, pool in pools(profile):
        if flags_of(profile, pool).get(name) != "extra_buffer_lazy":
            continue
        if pool.replicas.parallel.pipeline > 1:
            yield Fault(
                "extra_buffer_lazy does not work with pipeline parallelism",
                "use extra_buffer, or pipeline 1",
                path=flag_path(path, pool, name),
                found=f"pipeline {pool.replicas.parallel.pipeline}",
                wanted="pipeline 1",
                why="pipeline parallelism turns the overlap scheduler off, which extra_buffer_lazy requires",
            )
        if pool.replicas.role != "serve":
            yield Fault(
                f"extra_buffer_lazy does not work in the role {pool.replicas.role}",
                "use extra_buffer",
                path=flag_path(path, pool, name),
                why="the engine stops with an assertion",
            )


def no_buffer(profile: Profile) -> Iterator[Fault]:
    name = "mamba-radix-cache-strategy"
    for path, pool in pools(profile):
        flags = flags_of(profile, pool)
        if flags.get(name) != "no_buffer":
            continue
        if flags.get("page-size") != 1 or not is_on(flags.get("disable-overlap-schedule")):
            yield Fault(
                "no_buffer needs page size 1 and the overlap scheduler off",
                "set `page-size: 1` and `disable-overlap-schedule: true`, or use another strategy",
                path=flag_path(path, pool, name),
                found=f"page-size {flags.get('page-size', 'not set')}, "
                f"disable-overlap-schedule {str(flags.get('disable-overlap-schedule', 'not set')).lower()}",
                wanted="page-size 1, disable-overlap-schedule true",
            )


def dspark(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        flags = flags_of(profile, pool)
        here = flag_path(path, pool, "speculative-algorithm")
        if flags.get("speculative-algorithm") != "DSPARK":
            continue
        sizes = pool.replicas.parallel
        if sizes.pipeline > 1 and pool.replicas.role != "prefill":
            yield Fault("DSPARK does not work with pipeline parallelism", "make pipeline 1", path=here)
        if sizes.attention_data > 1 and not is_on(flags.get("enable-dp-lm-head")):
            yield Fault(
                "DSPARK with attention_data needs enable-dp-lm-head", "set `enable-dp-lm-head: true`", path=here
            )
        backend = flags.get("moe-a2a-backend", "none")
        if sizes.attention_data > 1 and backend not in ("none", "megamoe", "mori"):
            yield Fault(
                "DSPARK with attention_data does not work with this all-to-all backend",
                "use another moe-a2a-backend",
                path=flag_path(path, pool, "moe-a2a-backend"),
                found=str(backend),
                wanted="none, megamoe or mori",
            )


def draft_is_on_the_node(profile: Profile) -> Iterator[Fault]:
    name = "speculative-draft-model-path"
    for path, pool in pools(profile):
        draft = flags_of(profile, pool).get(name)
        if isinstance(draft, str) and not draft.startswith("/"):
            yield Fault(
                "a draft model named by its repository is not fetched",
                "put it on every node below storage.hf_home, and give its path as the container sees it, "
                "below /root/.cache/huggingface",
                path=flag_path(path, pool, name),
                found=draft,
                wanted="an absolute path",
                why="the engine starts offline, and only model.repo is fetched",
            )


def replay_on_prefill(profile: Profile) -> Iterator[Fault]:
    name = "enable-linear-replayssm-spec"
    for path, pool in pools(profile):
        if pool.replicas.role == "prefill" and is_on(flags_of(profile, pool).get(name)):
            yield Fault(f"{name} is refused in the role prefill", "leave it out", path=flag_path(path, pool, name))


def dist_timeout(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        value = flags_of(profile, pool).get("dist-timeout")
        is_long = isinstance(value, int) and value >= 3600
        if profile.hardware.gpu.architecture == "hopper" and pool.replicas.nodes_each > 1 and not is_long:
            yield Fault(
                "a replica over several Hopper nodes needs a longer dist-timeout",
                "set `dist-timeout: 3600`",
                path=flag_path(path, pool, "dist-timeout"),
                found="not set" if value is None else str(value),
                wanted="3600",
                why="the default of 600 s ends a healthy start when one node loads slower than the others",
            )


def _megamoe_span(profile: Profile) -> Iterator[Fault]:
    if profile.hardware.nvlink_domain == "rack":
        return
    for path, pool in pools(profile):
        is_megamoe = flags_of(profile, pool).get("moe-a2a-backend") in ("megamoe", "flashinfer_megamoe")
        if is_megamoe and pool.replicas.parallel.expert > profile.hardware.gpus_per_node:
            yield Fault(
                "megamoe over several NVLink domains",
                "keep expert within one node, or use another moe-a2a-backend",
                path=flag_path(path, pool, "moe-a2a-backend"),
                found=f"expert {pool.replicas.parallel.expert}",
                wanted=f"at most {profile.hardware.gpus_per_node}, the GPUs of one node",
                why="on Hopper it starts well and fails at the first token (sgl-project/sglang issue 36303); "
                "nobody reported either way for Blackwell nodes",
            )


def megamoe_on_hopper(profile: Profile) -> Iterator[Fault]:
    if profile.hardware.gpu.architecture == "hopper":
        yield from _megamoe_span(profile)


def megamoe_on_blackwell(profile: Profile) -> Iterator[Fault]:
    if profile.hardware.gpu.architecture != "hopper":
        yield from _megamoe_span(profile)


PARALLEL_RULES = (
    Rule("gpus-equal-world", Level.ERROR, gpus_equal_world),
    Rule("tensor-divides", Level.ERROR, tensor_divides),
    Rule("attention-divides", Level.ERROR, attention_divides),
    Rule("expert-divides", Level.ERROR, expert_divides),
    Rule("decode-context-divides", Level.ERROR, decode_context_divides),
    Rule("attention-data-needs-release", Level.ERROR, attention_data_needs_release),
    Rule("decode-context-on-hopper", Level.ERROR, decode_context_on_hopper),
    Rule("symmetric-memory-with-decode-context", Level.WARNING, symmetric_memory_with_decode_context),
    Rule("lazy-buffer", Level.ERROR, lazy_buffer),
    Rule("no-buffer", Level.ERROR, no_buffer),
    Rule("dspark", Level.ERROR, dspark),
    Rule("draft-on-the-node", Level.ERROR, draft_is_on_the_node),
    Rule("replay-on-prefill", Level.ERROR, replay_on_prefill),
    Rule("dist-timeout", Level.WARNING, dist_timeout),
    Rule("megamoe-span-hopper", Level.ERROR, megamoe_on_hopper),
    Rule("megamoe-span-blackwell", Level.WARNING, megamoe_on_blackwell),
)
