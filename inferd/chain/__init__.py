"""The local chain, and what has to be done on a chain once: compile, deploy, register."""
