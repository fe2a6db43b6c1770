"""How fast the chain is copied into the tables, against three other ways of doing it."""
