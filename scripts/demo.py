#!/usr/bin/env python3
"""Shows the whole path on real parts: the same as `inferd demo`.

.venv/bin/python scripts/demo.py
"""

import sys

from inferd.cli import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]])
