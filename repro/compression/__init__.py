"""Compresses tensors on one rank: selection, sparse vectors, error feedback, codecs and their kernels."""
