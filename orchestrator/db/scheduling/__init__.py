"""The steps of the scheduler's turn: assign cells to devices, ingest results, end what cannot run."""
