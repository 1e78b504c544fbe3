"""Results as people and scripts read them: frozen records and their stable JSON."""
