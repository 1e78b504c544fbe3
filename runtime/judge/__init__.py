"""Judges outputs by rules, bounds and figures of agreement; runs no model."""
