"""Other runtimes as delegates, each with the whole file. Their descriptors import nothing of them."""
