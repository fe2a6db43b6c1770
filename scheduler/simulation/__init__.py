"""The decisions of this package on recorded or drawn arrivals and prices, in virtual time."""
