"""Processes of an attempt: how they start in a control group, are found, end, and why they ended."""
