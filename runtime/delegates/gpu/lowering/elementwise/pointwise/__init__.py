"""Element-wise operators on elements of any type: the expressions, and the kernels that are made of them."""
