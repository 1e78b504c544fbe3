"""What is done to results that exist: measured again, refined, imported, steered."""
