"""What `clean` does to one text: repairs, and rules that name a reason to reject it. Pure functions."""
