"""A random language model of 100 kB: ``hub FOLDER`` writes it for transformers, ``gguf FILE`` for llama.cpp."""

from __future__ import annotations

import sys

WIDTH, WINDOW, END = 32, 512, "<|end|>"
TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "
)


def list_tokens() -> list[str]:
    """Every byte as byte-level tokenizers write it, the end, and one merged token."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return [*(chr(byte if byte in kept else 256 + rest.index(byte)) for byte in range(256)), END, "he"]


def write_hub(folder: str) -> None:
    """Model and tokenizer as files of the hub."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = list_tokens()
    inner = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[("h", "e")]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, bos_token=END, pad_token=END)
    tokenizer.chat_template = TEMPLATE
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = dict.fromkeys(("eos_token_id", "bos_token_id", "pad_token_id"), 256)
    config = LlamaConfig(vocab_size=len(words), max_position_embeddings=WINDOW, **sizes, **ends)
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_gguf(file: str) -> None:
    """Model and tokenizer in one GGUF file."""
    import gguf
    import numpy as np

    words, writer = list_tokens(), gguf.GGUFWriter(file, "llama")
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // 2)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(words)
    writer.add_token_types([1] * 256 + [3, 1])  # normal; control for the end
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(256)
    writer.add_chat_template(TEMPLATE)
    random, squares = (
        np.random.default_rng(0),
        ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
    )
    shapes = {"token_embd": (len(words), WIDTH), "output": (len(words), WIDTH)}
    shapes |= {f"blk.0.{name}": (WIDTH, WIDTH) for name in squares}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(0, 0.1, shape).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    {"hub": write_hub, "gguf": write_gguf}[sys.argv[1]](sys.argv[2])
