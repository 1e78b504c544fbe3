"""The interfaces to devices that can run the delegate's kernels, behind one protocol."""
