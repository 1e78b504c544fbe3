"""Runs beside and after the timed blocks: sensors, the passes of `agent.wire.passes`, labelled data."""
