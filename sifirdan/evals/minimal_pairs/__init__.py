"""Turkish minimal pairs: two sentences that differ in one place, of which one is correct Turkish.

- pairs.py: the whole set, fixed by this code, the lexicon and a seed; a pair as it is published.
- spelling.py, agreement.py, particles.py: the phenomena, a function each, which gives drafts (drafts.py).
- lexicon.py reads lexicon.json: stems with what a rule must know of them.
- scoring.py: how often a model prefers the right member, with standard errors.
- baselines.py: what counts and lengths would get without any Turkish.
- publish.py: the set as a data set for others, with its card.
"""
