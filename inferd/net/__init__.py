"""Calls to addresses that strangers name: who may be reached, and how much may come back."""
