"""The answer of a campaign: one line a model, with a headline above and a legend below."""
