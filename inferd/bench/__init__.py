"""What the contracts cost, measured on a chain of its own."""
