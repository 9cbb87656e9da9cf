"""The console script. `--version` is answered before anything heavy is imported: it must cost what Python costs."""

import sys

from k3deploy import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        print(f"k3deploy {__version__}")
        return
    from k3deploy.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
