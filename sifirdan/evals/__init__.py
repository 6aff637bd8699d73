"""Measurements of a finished model folder."""
