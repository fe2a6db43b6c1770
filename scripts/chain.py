#!/usr/bin/env python3
"""Starts the local chain of anvil.toml: the same as `inferd chain`.

.venv/bin/python scripts/chain.py --config-file anvil.toml
"""

import sys

from inferd.cli import main

if __name__ == "__main__":
    main(["chain", *sys.argv[1:]])
