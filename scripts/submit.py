#!/usr/bin/env python3
"""Asks for one inference: the same as `inferd submit`.

    .venv/bin/python scripts/submit.py --model smollm2-135m --prompt Hello \\
        --fee 0.001ether --deadline 10m
"""

import sys

from inferd.cli import main

if __name__ == "__main__":
    main(["submit", *sys.argv[1:]])
