"""The steps of the scheduler's turn: assign cells to devices, ingest results, end what cannot run.

And what a restored copy needs before its first turn.
"""
