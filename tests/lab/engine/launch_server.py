"""`python3 -m sglang.launch_server`: the old way to start the engine, still supported."""

import sys
import warnings

from .main import run

if __name__ == "__main__":
    warnings.warn(
        "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.",
        UserWarning,
        stacklevel=1,
    )
    run(sys.argv[1:])
