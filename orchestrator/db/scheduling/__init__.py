"""What a turn of the scheduler does: give cells to devices, let results count, end what cannot run."""
