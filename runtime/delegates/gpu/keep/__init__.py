"""Caches that outlive a process, and the fingerprints that they are keyed by."""
