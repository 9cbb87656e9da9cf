"""The `sglang` command: `serve` and `version`."""

import argparse
import sys
from typing import NoReturn

from .main import run
from .version import installed_version


def main() -> NoReturn:
    """Parse the sub-command; everything after `serve` is the engine's own."""
    parser = argparse.ArgumentParser(prog="sglang")
    commands = parser.add_subparsers(dest="subcommand", required=True)
    commands.add_parser("serve", help="Launch an SGLang server.", add_help=False)
    commands.add_parser("version", help="Show the version information.")
    args, extra = parser.parse_known_args()
    if args.subcommand == "serve":
        run(extra)
    print(f"sglang version: {installed_version()}")
    sys.exit(0)


if __name__ == "__main__":
    main()
