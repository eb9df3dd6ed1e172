"""The controller's side of the rollout protocol.

:class:`RolloutController` is what evaluation and training use; the other names are its parts. Everything that serves HTTP
needs the ``server`` extra and is imported at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osmosis_ai.rollout.controller.chat import ChatError, ChatModel, TransientChatError
    from osmosis_ai.rollout.controller.chat_router import ChatEndpoint
    from osmosis_ai.rollout.controller.controller import RolloutController
    from osmosis_ai.rollout.controller.listener import CallbackListener, create_callback_app
    from osmosis_ai.rollout.controller.llm_bridge import (
        BridgeChatModel,
        LiteLLMBridge,
        create_bridge_router,
    )
    from osmosis_ai.rollout.controller.result import RolloutResult
    from osmosis_ai.rollout.controller.store import (
        CallbackStore,
        DuplicateRegistrationError,
        TerminalCallbackResult,
        UnknownRolloutIdError,
        duplicate_callback_payload,
    )
    from osmosis_ai.rollout.controller.usage import UsageLedger
    from osmosis_ai.rollout.controller.watch import ServerUnavailableError

__all__ = [
    "BridgeChatModel",
    "CallbackListener",
    "CallbackStore",
    "ChatEndpoint",
    "ChatError",
    "ChatModel",
    "DuplicateRegistrationError",
    "LiteLLMBridge",
    "RolloutController",
    "RolloutResult",
    "ServerUnavailableError",
    "TerminalCallbackResult",
    "TransientChatError",
    "UnknownRolloutIdError",
    "UsageLedger",
    "create_bridge_router",
    "create_callback_app",
    "duplicate_callback_payload",
]

_LEAVES = {
    "BridgeChatModel": "llm_bridge",
    "CallbackListener": "listener",
    "CallbackStore": "store",
    "ChatEndpoint": "chat_router",
    "ChatError": "chat",
    "ChatModel": "chat",
    "DuplicateRegistrationError": "store",
    "LiteLLMBridge": "llm_bridge",
    "RolloutController": "controller",
    "RolloutResult": "result",
    "ServerUnavailableError": "watch",
    "TerminalCallbackResult": "store",
    "TransientChatError": "chat",
    "UnknownRolloutIdError": "store",
    "UsageLedger": "usage",
    "create_bridge_router": "llm_bridge",
    "create_callback_app": "listener",
    "duplicate_callback_payload": "store",
}

_SERVER_EXTRA = frozenset({"fastapi", "starlette", "uvicorn"})


def __getattr__(name: str) -> Any:
    leaf = _LEAVES.get(name)
    if leaf is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{leaf}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _SERVER_EXTRA:
            raise
        raise ModuleNotFoundError(
            f'{__name__}.{name} serves HTTP: pip install "osmosis-ai[server]"', name=missing
        ) from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LEAVES})
