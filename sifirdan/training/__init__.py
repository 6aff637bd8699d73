"""The training loop and what it needs: losses, optimisers, resume."""
