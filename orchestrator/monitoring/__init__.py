"""Metrics of a running farm for Prometheus: counters of this process, and the state in the database."""
