"""How a model is run other than by the numpy kernels: protocols, partitioner, registry, delegates."""
