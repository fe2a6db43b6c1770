"""`inferd demo`: the whole path on real parts, shown while it works and checked at the end."""
