"""Turkish minimal pairs: two sentences that differ in one place, of which one is correct Turkish."""
