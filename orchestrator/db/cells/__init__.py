"""Cells and attempts: how they begin, wait, run and end."""
