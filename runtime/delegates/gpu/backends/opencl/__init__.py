"""OpenCL: devices, programs, recordings."""
