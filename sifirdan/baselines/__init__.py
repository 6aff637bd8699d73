"""Tokenizers to compare ours with: small, readable, trained on the same text at the same size."""
