"""Hold what all three floors share, without numpy: pure statistics and verdicts, and `durable` for files."""
