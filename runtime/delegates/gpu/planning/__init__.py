"""Plans the run of a partition: its graph, kernels and memory, without a device, as plain data."""
