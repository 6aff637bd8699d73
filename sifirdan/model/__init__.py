"""The transformer, written by us, and its checkpoint folder. Where the parts of a course are:

token embedding            transformer.py: Decoder.embed_tokens, Transformer.embed
positional encoding        positions.py: LearnedPositions, SinusoidalPositions, NoPositions
  rotary (RoPE)            positions.py: RotaryPositions, rotate
self-attention, its heads  attention.py: Attention (split into heads and joined again)
  scaled dot product       attention.py: attend, SpelledOutAttention (softmax and gradient spelt out)
  grouped heads            attention.py: SpreadHeads
  causal mask              transformer.py: Decoder.causal, segment_mask; attention.py: attend, additive
  key-value cache          attention.py: LayerCache
feed-forward network       mlp.py: GELUMLP, SwiGLU
layer norm, RMSNorm        norms.py: LayerNorm, LayerNormWithBias, RMSNorm
dropout                    layers.py: dropout
block, residual stream     transformer.py: Block (pre-norm)
output head                transformer.py: Transformer.lm_head
weight tying               transformer.py: Transformer.__init__
starting weights           initialisation.py: gpt2, zero_residual
sizes, choice of parts     shape.py: ModelShape, ModelConfig
work for a token (FLOPs)   flops.py: flops_per_token
checkpoint folder          checkpoint.py: save_model, load_model; layouts.py: LAYOUTS

Outside this folder, in sifirdan/:

tokenizer                  tokenizer_training.py: train; tokenizer.py: Tokenizer
targets, shifted by one    corpus/loader.py: Stream.window, Packed.window
cross-entropy loss         training/losses.py: cross_entropy_sum
training step              training/loop.py: fit
  gradient clipping        training/loop.py: _average_and_clip
AdamW                      training/optim.py: build_optimizers
learning-rate schedule     training/optim.py: Schedule.lr_factor
temperature, top-k         generate.py: sample, keep_top_k

The courses' mini GPT is these parts as presets/model/classic.yaml chooses them.
"""
