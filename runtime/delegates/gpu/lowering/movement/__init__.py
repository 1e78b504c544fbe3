"""Operators that move elements without computing."""
