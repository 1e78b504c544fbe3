"""The truth: campaigns, cells, attempts, results, devices and what happened, in one SQL database."""
