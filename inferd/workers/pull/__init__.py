"""Workers that fetch their jobs from a broker of the operator's instead of listening."""
