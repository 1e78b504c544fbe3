"""Turns a subgraph into a flat list of steps: shapes and constants, lifetimes, memory, bound kernels."""
