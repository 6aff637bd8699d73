"""Measurements of finished models and tokenizers. What lies where:

- likelihood.py: nats of many short pieces in batches; every likelihood below is a sum of these.
- bits_per_byte.py: windows over documents, and bits per byte of them (`train`, `sifirdan score`).
- language_model.py: the same figure by source, length and place, with interval and calibration (`evaluate`).
- side_by_side.py: several models on one text, the table of `sifirdan score`; own_files.py reads the user's files.
- minimal_pairs/, multiple_choice.py with tasks/: which of two or more texts is likelier.
- samples.py, generation.py, memorisation.py: what a model writes by itself.
- answers.py, chat_exam.py: what a chat model answers.
- tokenizer_card.py, tokenizer_measures.py, tokenizer_probes.py, suffix_gold.py, hard_texts.py: tokenizers.
- suffix_words.py: Turkish words built from stems and suffixes by rule.
"""
