"""Signals, words and identifiers as numbers: spectra, embeddings, buckets, hashes."""
