"""What Prometheus is told of a running farm: counters of this process, and the state in the database."""
