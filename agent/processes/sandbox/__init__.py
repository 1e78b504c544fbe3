"""Limits what a runner may reach: the kernel's boundaries around strangers' models, entered before exec."""
