"""Devices, their agents, and who may use them."""
