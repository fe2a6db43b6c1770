"""Engine 1: copies what happens on the chain into PostgreSQL, safe against reorganisations."""
