"""Checks on results before they are accepted: what is compared, by whom, and what comes of it."""
