"""The controller's side of the rollout protocol.

:class:`RolloutController` is what evaluation and training use; the other names are its parts. Everything that serves HTTP
needs the ``server`` extra and is imported at first use.
"""

from typing import TYPE_CHECKING

from osmosis_ai.lazy_facade import lazy_facade

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

__getattr__, __dir__ = lazy_facade(
    __name__,
    {
        "BridgeChatModel": "osmosis_ai.rollout.controller.llm_bridge",
        "CallbackListener": "osmosis_ai.rollout.controller.listener",
        "CallbackStore": "osmosis_ai.rollout.controller.store",
        "ChatEndpoint": "osmosis_ai.rollout.controller.chat_router",
        "ChatError": "osmosis_ai.rollout.controller.chat",
        "ChatModel": "osmosis_ai.rollout.controller.chat",
        "DuplicateRegistrationError": "osmosis_ai.rollout.controller.store",
        "LiteLLMBridge": "osmosis_ai.rollout.controller.llm_bridge",
        "RolloutController": "osmosis_ai.rollout.controller.controller",
        "RolloutResult": "osmosis_ai.rollout.controller.result",
        "ServerUnavailableError": "osmosis_ai.rollout.controller.watch",
        "TerminalCallbackResult": "osmosis_ai.rollout.controller.store",
        "TransientChatError": "osmosis_ai.rollout.controller.chat",
        "UnknownRolloutIdError": "osmosis_ai.rollout.controller.store",
        "UsageLedger": "osmosis_ai.rollout.controller.usage",
        "create_bridge_router": "osmosis_ai.rollout.controller.llm_bridge",
        "create_callback_app": "osmosis_ai.rollout.controller.listener",
        "duplicate_callback_payload": "osmosis_ai.rollout.controller.store",
    },
    needs="server",
)
