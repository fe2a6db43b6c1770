"""The whole path under load, on real parts, with a model that answers at once."""
