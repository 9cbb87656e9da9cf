"""Programs that run on the nodes, with the node's own python3 (3.10 or newer) and its standard library only.

A module here may import the standard library and other modules of `k3deploy.remote`, nothing else. An entry module has

    def main(args: dict[str, Any], say: Say) -> dict[str, Any]

`say({...})` sends a progress line at once; the returned dict is the result; raising `Refusal` is the error.
Secrets arrive in args["secrets"]. `adapters/bundle.py` packs an entry with what it imports into one script.
"""
