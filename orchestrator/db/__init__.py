"""The SQL database of campaigns, cells, attempts, results, devices and events."""
