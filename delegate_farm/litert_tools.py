"""`python -m delegate_farm.litert_tools TOOL --NAME=VALUE…` runs LiteRT's tools (docs/litert-tools.md)."""

import sys

from runtime.evaluation.__main__ import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
