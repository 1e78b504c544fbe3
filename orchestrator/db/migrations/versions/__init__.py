"""One file per revision, oldest first by number."""
