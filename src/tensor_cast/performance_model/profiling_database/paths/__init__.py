"""One module per interpolation path: which kernels, which axes, what must be equal."""
