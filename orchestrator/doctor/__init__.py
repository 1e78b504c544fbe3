"""Checks every part of an installation for `farm doctor`, with the fix for each fault."""
