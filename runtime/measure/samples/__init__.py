"""Summarises samples: percentiles, tails, variation, drift and noise."""
