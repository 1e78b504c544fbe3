"""Runs models other than by the numpy kernels: protocols, partitioner, registry, delegates."""
