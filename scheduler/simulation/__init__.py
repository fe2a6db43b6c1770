"""A deterministic discrete-event simulator in virtual time.

It runs the same `plan` and the same posting `decide` as the daemon, on recorded or generated
arrivals, worker pools and base fees, and compares what they earn with a clairvoyant bound. Nothing
here reads a file or a clock: the same seed gives the same result, to the wei.
"""
