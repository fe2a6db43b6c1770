#!/usr/bin/env python3
"""Runs the daemon: the same as `inferd node`.

.venv/bin/python scripts/node.py
"""

import sys

from inferd.cli import main

if __name__ == "__main__":
    main(["node", *sys.argv[1:]])
