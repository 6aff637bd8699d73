"""What leaves the machine: finished folders for other programs and places."""
