"""What dispatch takes, apart from computing and from the rounds that give work away."""
