"""What was asked and what is known: campaigns, cells, scheduling, database, results, site."""
