"""Following a chain that changes its mind: a pure window, and the coordinator that feeds it."""
