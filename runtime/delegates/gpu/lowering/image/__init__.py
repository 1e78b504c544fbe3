"""Windows, sizes and blocks of images."""
