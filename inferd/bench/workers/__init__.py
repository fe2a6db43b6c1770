"""Five worker processes, good and bad, and what the bad ones cost a daemon that asks them all."""
