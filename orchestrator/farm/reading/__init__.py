"""Reads campaigns, cells and the state of the scheduler."""
