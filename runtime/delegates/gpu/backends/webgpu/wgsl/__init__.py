"""Translates kernels of the portable subset of OpenCL C into WGSL, the shading language of WebGPU."""
