"""Text on its way to the model: sources, records, instructions, shards, loader."""
