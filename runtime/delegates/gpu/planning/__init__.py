"""How the delegate would run a partition: its graph, kernels and memory, without a device, as plain data."""
