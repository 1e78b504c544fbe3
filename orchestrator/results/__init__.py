"""The content of results in one form for every reader: records, metrics, comparison, speed-ups, files."""
