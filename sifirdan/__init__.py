"""sifirdan ("from zero"): raw text to your own language model, every step open to inspection."""
