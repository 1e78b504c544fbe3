"""CONV_2D on OpenCL: one module for each way to compute it; `family.py` chooses among them."""
