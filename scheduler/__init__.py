"""Engine 2: the decisions, as pure functions of values."""
