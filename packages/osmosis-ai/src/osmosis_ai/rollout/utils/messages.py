"""Chat messages in the content-block shape of Strands."""

from collections.abc import Iterable, Mapping
from typing import Any


def map_initial_messages_to_content_blocks(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of ``role`` and ``content`` only, text content as one text block; block lists stay the same objects."""
    return [
        {
            "role": message["role"],
            "content": [{"text": content}] if isinstance(content := message.get("content"), str) else content,
        }
        for message in messages
    ]
