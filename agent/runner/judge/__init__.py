"""Concludes from an attempt's reports: accuracy, references, the figures of blocks, the verdict."""
