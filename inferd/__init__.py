"""The daemon and its commands, which wire the two engines together."""

__version__ = "0.1.0"
