"""The graph of a partition: nodes, types of elements, weights, epilogues, parameters."""
