"""Operators with effects beyond their own outputs: subgraphs, variables, hash tables."""
