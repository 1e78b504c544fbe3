"""How jobs reach agents and their messages come back: one protocol, one module per link."""
