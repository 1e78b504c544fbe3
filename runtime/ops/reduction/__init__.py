"""Many elements joined to one, or weighed against each other."""
