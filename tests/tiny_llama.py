"""A model of 94,528 parameters, as its config.json says it: what tests of training train."""

MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 320,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
