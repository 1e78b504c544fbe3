"""Reads `models.yaml` strictly: the result is a campaign, or every mistake with its line and column."""
