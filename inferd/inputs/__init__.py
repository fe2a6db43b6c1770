"""Inputs that requests name by URI: read, fetched once, kept until nobody waits for them."""
