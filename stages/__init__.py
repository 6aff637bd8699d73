"""One file, one DVC stage: thin entry points over the library."""
