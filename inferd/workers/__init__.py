"""Who computes: workers and their models, leases, dispatch, signatures."""
