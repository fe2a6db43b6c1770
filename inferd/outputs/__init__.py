"""Outputs by their digests: small ones in PostgreSQL, large ones in files."""
