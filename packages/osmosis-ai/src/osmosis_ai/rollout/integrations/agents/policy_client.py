"""The OpenAI client through which an agent reaches the policy of its rollout."""

import ssl
from collections.abc import Mapping
from functools import cache
from inspect import signature
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.resources.chat.completions import AsyncCompletions

from osmosis_ai.rollout.context import CHAT_COMPLETIONS_URL_ENV, RolloutContext, get_rollout_context

MODEL_ID = "openai/osmosis-rollout"
WIRE_MODEL = "osmosis-rollout"
# The client insists on some key and would otherwise take OPENAI_API_KEY, a secret the controller must never see.
_NO_KEY = "no-key"


class PolicyClient(AsyncOpenAI):
    """An OpenAI client bound to the chat-completions URL of one rollout.

    The policy is always asked for as ``osmosis-rollout``, whatever the framework calls it.
    """

    def __init__(self, *, base_url: str, api_key: str | None, **client_args: Any) -> None:
        if "http_client" not in client_args:
            client_args["http_client"] = _http_client(base_url)
        super().__init__(base_url=base_url, api_key=api_key or _NO_KEY, **client_args)
        self._rollout_url = base_url

    async def _prepare_options(self, options: Any) -> Any:
        if not self._rollout_url:
            raise RuntimeError(
                "the rollout has no chat-completions URL: run the workflow through a backend or a rollout server, "
                f"pass RolloutContext(chat_completions_url=...), or set {CHAT_COMPLETIONS_URL_ENV}"
            )
        if isinstance(options.json_data, dict) and options.json_data.get("model") == MODEL_ID:
            options.json_data = {**options.json_data, "model": WIRE_MODEL}
        return await super()._prepare_options(options)


def require_rollout_context(what: str) -> RolloutContext:
    """The running rollout.

    Raises:
        RuntimeError: outside of one; ``what`` names the object that needs it.
    """
    ctx = get_rollout_context()
    if ctx is None:
        raise RuntimeError(
            f"{what} needs an active RolloutContext: construct it inside AgentWorkflow.run(), not at import time"
        )
    return ctx


def split_request_fields(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields the client has parameters for, and those it does not know (``top_k``, ...), which travel in ``extra_body``."""
    known = _request_parameters()
    return (
        {key: value for key, value in fields.items() if key in known},
        {key: value for key, value in fields.items() if key not in known},
    )


@cache
def _request_parameters() -> frozenset[str]:
    return frozenset(signature(AsyncCompletions.create).parameters)


def _http_client(base_url: str) -> Any:
    url = urlsplit(base_url)
    options: dict[str, Any] = {"trust_env": not _is_loopback(url.hostname)}
    if url.scheme == "http":
        # Loading the certificate authorities takes longer than a call on the same machine; a context without any refuses
        # every TLS peer, so a redirect to https fails instead of going unverified.
        options["verify"] = _bare_tls_context()
    return DefaultAsyncHttpxClient(**options)


@cache
def _bare_tls_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _is_loopback(host: str | None) -> bool:
    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
