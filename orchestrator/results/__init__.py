"""Results as people and scripts read them: records, statistics across runs, export."""
