"""Devices, their agents, the farm's users and their credentials."""
