"""What a profile may not set by hand, because another field, the topology or a probe decides it: one owner per fact."""

_FLAGS = {
    "tp-size": "pools[].replicas.parallel.tensor",
    "pp-size": "pools[].replicas.parallel.pipeline",
    "ep-size": "pools[].replicas.parallel.expert",
    "dp-size": "pools[].replicas.count, or replicas.parallel.attention_data",
    "attn-dp-size": "pools[].replicas.parallel.attention_data",
    "enable-dp-attention": "pools[].replicas.parallel.attention_data",
    "dcp-size": "pools[].replicas.parallel.decode_context",
    "nnodes": "pools[].replicas.nodes_each",
    "node-rank": "the order of the nodes file",
    "dist-init-addr": "network.rendezvous_port and the first node's private address",
    "host": "network.api",
    "port": "network.api_port",
    "model-path": "model.repo",
    "revision": "model.revision",
    "served-model-name": "model.served_name",
    "disaggregation-mode": "pools[].replicas.role",
    "api-key": "network.api: public, with a key that k3deploy makes and hands over in a file",
    "admin-api-key": "network.api: public, with a key that k3deploy makes and hands over in a file",
    "config": "engine.flags",
}

# Other names that SGLang (0.5.23) takes for the same options.
_OTHER_NAMES = {
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "expert-parallel-size": "ep-size",
    "ep": "ep-size",
    "data-parallel-size": "dp-size",
    "attention-data-parallel-size": "attn-dp-size",
    "decode-context-parallel-size": "dcp-size",
    "nccl-init-addr": "dist-init-addr",
    "model": "model-path",
}

OWNED_FLAGS = _FLAGS | {other: _FLAGS[name] for other, name in _OTHER_NAMES.items()}

OWNED_ENV = {
    "SGLANG_HOST_IP": "the node's private address",
    "HOST_IP": "the node's private address",
    "NCCL_SOCKET_IFNAME": "the interface that holds the node's private address",
    "GLOO_SOCKET_IFNAME": "the interface that holds the node's private address",
    "NCCL_IB_DISABLE": "whether active RDMA ports were found on the nodes",
    "NCCL_IB_HCA": "the active RDMA ports that were found on the node",
    "NCCL_SOCKET_FAMILY": "the family of the private addresses",
    "HF_HUB_OFFLINE": "k3deploy: the weights are on the node before the engine starts",
    "HF_HOME": "storage.hf_home",
    "HF_TOKEN": "nobody: an engine that starts offline needs no token",
    "HUGGING_FACE_HUB_TOKEN": "nobody: an engine that starts offline needs no token",
}
