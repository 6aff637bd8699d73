"""Runs side by side: what changed, what that did to the numbers, and what is noise."""
