"""`inferd bench policies`: every policy in the simulator, against a clairvoyant bound."""
