"""What a result says, in one form for every reader: records, metrics, comparison, speed-ups and files."""
