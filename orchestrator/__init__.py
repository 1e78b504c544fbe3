"""Plans, schedules and shows measurements: campaigns, cells, scheduling, database, results, site."""
