"""The transformer, written by us, and its checkpoint folder."""
