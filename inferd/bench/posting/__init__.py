"""What the time of posting costs, against one who knows all arrivals and prices in advance."""
