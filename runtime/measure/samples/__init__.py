"""What samples say: percentiles, tails, variation, drift and noise."""
