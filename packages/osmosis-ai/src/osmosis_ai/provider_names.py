"""The providers that ``provider/model`` may name. Asking LiteLLM itself would cost seconds and 200 MB.

A test compares the list with the LiteLLM that is locked. Providers that ask a person to log in are left out.
"""

import difflib
from collections.abc import Collection

_NAMES = """
a2a a2a_agent abliteration ai21 ai21_chat aiand aihubmix aiml aiohttp_openai amazon_nova anthropic
anthropic_text apertis assemblyai auto_router aws_polly aws_textract azure azure_ai azure_speech
azure_text baseten bedrock bedrock_mantle bespoke bigmodel black_forest_labs bytez cerebras
charity_engine chutes clarifai clf_ai_gateway cloudflare codestral cognition cohere cohere_chat cometapi
compactifai coralbricks cortecs crusoe cursor custom custom_openai darkbloom dashscope databricks
databricks_agent datarobot deepgram deepinfra deepseek docker_model_runner dotprompt edenai elevenlabs
empiriolabs empower eu_jev fal_ai featherless_ai fireworks_ai friendliai galadriel gdc gemini gigachat
github gmi gradient_ai groq helicone heroku hosted_vllm hostinger_router huggingface humanloop
hyperbolic inception inferenceapis infinity jina_ai kyma lambda_ai langflow langfuse langgraph laya
lemonade libertai litellm_agent litellm_proxy llamafile llamagate lm_studio manus maritalk meta
meta_llama microsoft_365_copilot milvus minimax mistral modelscope mongodb moonshot morph nace nadir
nano-gpt nebius neosantara nlp_cloud novita nscale nvidia_nim nvidia_riva oci ollama ollama_chat
oobabooga openai openai_like opencode_go openinfer openrouter opensearch ovhcloud parallel_ai parasail
perplexity petals pg_vector pinstripes poe predibase prism publicai qwen_ai_platform qwencloud ragflow
recraft reducto refuseless reka replicate runwayml s3_vectors sagemaker sagemaker_chat sagemaker_nova
sail sambanova sap sarvam scaledown scaleway scx-ai snowflake soniox stability strands_decider
streamlake synthetic tencent tensormesh text-completion-codestral text-completion-inception
text-completion-openai together_ai topaz transcribe triton typesafe v0 valkey veniceai vercel_ai_gateway
vertex_ai vertex_ai_beta vllm volcengine voyage wally wandb watsonx watsonx_text xai xiaomi_mimo
xinference zai zerogpu
"""
PROVIDERS = frozenset(_NAMES.split())
# Where LiteLLM looks for the key of a provider that cannot be called without one.
KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "xai": "XAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "google": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "azure": "AZURE_API_KEY",
    "bedrock": "AWS_ACCESS_KEY_ID",
    "vertex_ai": "GOOGLE_APPLICATION_CREDENTIALS",
}
# Variables that LiteLLM takes in place of the key, for the providers that take nothing else. The cloud providers that are not
# here also know roles, profiles and files.
_INSTEAD = {
    "openai": {"OPENAI_ADMIN_KEY"},
    "anthropic": {"ANTHROPIC_AUTH_TOKEN"},
    "xai": set[str](),
    "gemini": {"GOOGLE_API_KEY"},
    "openrouter": {"OR_API_KEY"},
    "cerebras": set[str](),
}


def has_known_provider(model: str) -> bool:
    """Whether ``model`` is ``provider/name`` of a provider that LiteLLM knows. Case counts, as it does for LiteLLM."""
    provider, _, name = model.partition("/")
    return bool(name.strip("/")) and provider in PROVIDERS


def similar_provider(model: str) -> str | None:
    """The provider that the first part of ``model`` may be meant to name."""
    close = difflib.get_close_matches(model.partition("/")[0].lower(), sorted(PROVIDERS), n=1, cutoff=0.7)
    return close[0] if close else None


def missing_key(model: str, names: Collection[str]) -> str | None:
    """The variable with the key of the model's provider, when it is not among the names of what a run is given."""
    variable = KEY_VARIABLES.get(model.partition("/")[0])
    return variable if variable is not None and variable not in names else None


def cannot_be_called(model: str, names: Collection[str]) -> bool:
    """Whether LiteLLM is certain to refuse the model: nothing it could take for the provider's key is among ``names``."""
    instead = _INSTEAD.get(model.partition("/")[0])
    return instead is not None and missing_key(model, names) is not None and instead.isdisjoint(names)
