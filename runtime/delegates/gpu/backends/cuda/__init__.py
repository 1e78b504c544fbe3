"""The backend on NVIDIA's CUDA driver, without a toolkit."""
