"""Limits what a runner may reach: the kernel's own boundaries around strangers' models, entered before
exec.
"""
