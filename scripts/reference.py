#!/usr/bin/env python3
"""Writes docs/reference.md from the code.

.venv/bin/python scripts/reference.py
"""

from pathlib import Path

from inferd.node.reference import reference

if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("docs", "reference.md").write_text(reference())
