"""What lives beyond one operator: subgraphs, variables, hash tables."""
