"""Pages for people: self-contained HTML about a model, a corpus, a comparison."""
