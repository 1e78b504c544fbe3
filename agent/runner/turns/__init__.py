"""Blocks of processes that take turns: arms, processes, channels, rounds."""
