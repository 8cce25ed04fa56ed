"""What real servers say when they refuse a request, each sentence with its source, and the kind of fault that it is."""

from __future__ import annotations

import json

import pytest

from automedbench.base.endpoint.faults import FaultKind, classify_error_object, classify_status

LITELLM = "litellm 1.108.7, answered on 2026-11-28"
LLAMA = "llama.cpp's server (xllamacpp 2026.10.11549), answered on 2026-11-28"
OLLAMA = "ollama/ollama@fb3076099"
SGLANG = "sglang 0.5.23"
TGI = "huggingface/text-generation-inference@db931fcf"
VLLM = "vllm-project/vllm"
STUDIO = "lmstudio-ai/lmstudio-bug-tracker"
OVERFLOW: FaultKind = "context_overflow"

SENTENCES: list[tuple[str, int, str, FaultKind]] = [
    (
        LLAMA,
        400,
        "request (1518 tokens) exceeds the available context size (512 tokens), try increasing it",
        OVERFLOW,
    ),
    (LLAMA, 400, '{"type":"exceed_context_size_error","n_prompt_tokens":1518,"n_ctx":512}', OVERFLOW),
    (f"{LLAMA[:18]}, tools/server/server-context.cpp", 500, "Context size has been exceeded.", OVERFLOW),
    (LLAMA, 401, '{"message":"Invalid API Key","type":"authentication_error","code":401}', "auth"),
    (LLAMA, 503, '{"message":"Loading model","type":"unavailable_error","code":503}', "server"),
    (
        f"{VLLM}, entrypoints/openai/engine/serving.py",
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 8000. This model's maximum context length is 4096 tokens"
        " and your request has 2778 input tokens (8000 > 4096 - 2778).",
        OVERFLOW,
    ),
    (
        f"{VLLM}, v1/engine/processor.py",
        400,
        "The decoder prompt (length 8825) is longer than the maximum model length of 8192.",
        OVERFLOW,
    ),
    (
        f"{VLLM}, entrypoints/openai/serving_chat.py",
        400,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "bad_request",
    ),
    (f"{VLLM}, entrypoints/openai/api_server.py", 401, '{"error": "Unauthorized"}', "auth"),
    (f"{VLLM}, entrypoints/openai", 404, "The model `other` does not exist.", "bad_request"),
    (
        f"{SGLANG}, srt/managers/tokenizer_manager.py",
        400,
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        OVERFLOW,
    ),
    (
        f"{SGLANG}, srt/managers/tokenizer_manager.py",
        400,
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested 9000",
        OVERFLOW,
    ),
    (f"{SGLANG}, srt/utils/auth.py", 401, '{"error":"Unauthorized"}', "auth"),
    (f"{SGLANG}, srt/managers/scheduler.py", 503, "The request queue is full.", "server"),
    (
        f"{TGI}, router/src/validation.rs",
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens",
        OVERFLOW,
    ),
    (f"{TGI}, router/src/validation.rs", 422, "`inputs` must have less than 4096 tokens. Given: 9000", OVERFLOW),
    (
        f"{TGI}, router/src/server.rs",
        429,
        '{"error":"Model is overloaded","error_type":"overloaded"}',
        "rate_limit",
    ),
    (f"{OLLAMA}, llm/llama_server.go", 400, "the input length exceeds the context length", OVERFLOW),
    (
        f"{OLLAMA}, llm/llama_server.go",
        400,
        "the prompt is longer than the context length currently available to the model; shorten the prompt",
        OVERFLOW,
    ),
    (f"{OLLAMA}, server/routes.go", 404, 'model "other" not found, try pulling it first', "bad_request"),
    (
        f"{OLLAMA}, server/images.go",
        400,
        "registry.ollama.ai/library/gemma3:4b does not support tools",
        "bad_request",
    ),
    (
        f"{OLLAMA}, server/sched.go",
        503,
        "server busy, please try again.  maximum pending requests exceeded",
        "server",
    ),
    (
        f"{STUDIO}#546",
        400,
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context "
        "length of only 32768 tokens, which is not enough.",
        OVERFLOW,
    ),
    (
        f"{STUDIO}#2205",
        400,
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        OVERFLOW,
    ),
    ("anomalyco/opencode#11141", 400, "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", OVERFLOW),
    (
        LITELLM,
        400,
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: Hosted_vllmException",
        OVERFLOW,
    ),
    (LITELLM, 400, '{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}', "auth"),
    (LITELLM, 400, "/chat/completions: Invalid model name passed in model=other. Call `/v1/models`", "bad_request"),
    (
        "litellm 1.108.7, exceptions.py",
        400,
        "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0",
        "auth",
    ),
    (
        "litellm 1.108.7, types/router.py",
        429,
        "No deployments available for selected model, Try again in 60 seconds.",
        "rate_limit",
    ),
    ("Anthropic", 400, "prompt is too long: 210000 tokens > 200000 maximum", OVERFLOW),
    ("Anthropic", 400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000", OVERFLOW),
    ("Anthropic", 413, "request_too_large: Request exceeds the maximum size", OVERFLOW),
    ("Anthropic", 400, "Your credit balance is too low to access the Anthropic API.", "auth"),
    ("Google", 400, "The input token count (9) exceeds the maximum number of tokens", OVERFLOW),
    ("Google", 400, "INVALID_ARGUMENT: API key not valid. Please pass a valid API key.", "auth"),
    ("OpenAI", 400, '{"code": "context_length_exceeded"}', OVERFLOW),
    ("OpenAI", 400, "Input tokens exceed the configured limit of 272000 tokens.", OVERFLOW),
    ("OpenAI", 403, "content policy violation", "content_policy"),
    ("OpenAI", 429, '{"code": "insufficient_quota"}', "auth"),  # the account is empty: waiting would not help
    ("OpenAI", 429, "Rate limit reached for gpt-5 in organization on tokens per min (TPM)", "rate_limit"),
    ("OpenAI", 500, "The server had an error while processing your request.", "server"),
    ("Kimi", 400, "Your request exceeded model token limit: 262144 (requested: 300000)", OVERFLOW),
    ("GitHub Models", 400, "prompt token count of 200000 exceeds the limit of 128000", OVERFLOW),
]
"""Server and source, status, what it says, kind."""


@pytest.mark.parametrize(
    ("source", "status", "text", "kind"), SENTENCES, ids=[text[:40] for _, _, text, _ in SENTENCES]
)
def test_a_refusal_is_of_its_kind(source: str, status: int, text: str, kind: FaultKind) -> None:
    """As an HTTP error and as an error object in a reply or stream that names the same status."""
    error = json.loads(text) if text.startswith("{") else {"message": text}
    assert classify_status(status, json.dumps({"error": error})) == kind, source
    assert classify_error_object({"code": status} | error) == kind, source
