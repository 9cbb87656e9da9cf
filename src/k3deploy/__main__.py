"""The console script. `--version` is answered before anything heavy is imported: it must cost what Python costs."""

import gc
import os
import sys

from k3deploy import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        print(f"k3deploy {__version__}")
        return
    # Start-up makes many objects and no garbage: the default thresholds would look for some all the time
    # (a tenth of the CPU of a run with nothing to do).
    gc.set_threshold(100_000, 20, 100)
    # pydantic would read the metadata of every installed package to find plugins, which we have no use for.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

    from k3deploy.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
