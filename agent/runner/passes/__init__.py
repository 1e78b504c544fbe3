"""Runs beside and after the timed blocks: sensors, throughput, sustained load, labelled data."""
