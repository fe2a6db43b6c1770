"""Workers on other machines: who of the registry is in the pool, and how they are asked."""
