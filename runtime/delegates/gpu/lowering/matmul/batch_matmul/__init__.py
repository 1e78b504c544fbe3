"""Matrix products of two computed tensors: BATCH_MATMUL, and FULLY_CONNECTED with computed weights."""
