"""What the words of the command `sifirdan` do; the words themselves stand in cli.py."""
