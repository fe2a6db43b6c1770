"""Results -> chain: signed once, sent until they are mined, followed until they are final."""
