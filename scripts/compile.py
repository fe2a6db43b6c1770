#!/usr/bin/env python3
"""Compiles the contracts into contracts/artifacts: the same as `inferd compile`.

.venv/bin/python scripts/compile.py --no-install
"""

import sys

from inferd.cli import main

if __name__ == "__main__":
    main(["compile", *sys.argv[1:]])
