"""What is agreed with the contracts: encodings, hashes, signatures, addresses.

No I/O but reading files.
"""
