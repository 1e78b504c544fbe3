"""Campaigns and the farm as a whole."""
