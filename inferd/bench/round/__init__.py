"""How long one scheduling round takes, and what it grows with."""
