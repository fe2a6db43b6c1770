"""Policies that others bring: found by entry point, run in a process of their own."""
