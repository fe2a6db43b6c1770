#!/usr/bin/env python3
"""Deploys the contracts and writes the deployment file: the same as `inferd deploy`.

.venv/bin/python scripts/deploy.py --poster-bps 2000
"""

import sys

from inferd.cli import main

if __name__ == "__main__":
    main(["deploy", *sys.argv[1:]])
