"""How jobs get to agents and their words come back: one protocol, one module per link."""
