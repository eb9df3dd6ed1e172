"""What the engine needs to know about the server and the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# The API has no field for the scale of an adapter: servers use this alpha.
FIXED_ALPHA = 32.0
# The largest norm a run can be configured with: gradients are taken as they are.
NO_CLIPPING = 1000.0


@dataclass(frozen=True, slots=True)
class TinkerSettings:
    """How the engine reaches its server and what it trains there.

    `url` is the server's address without `/api/v1`; `api_key` goes into the `X-API-Key` header and nowhere else.
    `base_model` is the model's name at the server, `model_folder` the local folder with its tokenizer and config.
    `max_context` None takes the model's own limit. `token_budget`: tokens of one training request. `max_grad_norm`
    is what the run will ask for; a server that does not clip is refused unless it is at least `NO_CLIPPING`. `patience_s`: how long
    a server may be unreachable or refuse work before the engine gives up. `result_s`: the longest wait for one result.
    `lease`: a file that remembers the run's models on the server.
    """

    url: str
    base_model: str
    model_folder: Path
    api_key: str | None = field(default=None, repr=False)
    rank: int = 16
    seed: int = 0
    max_context: int | None = None
    token_budget: int = 16384
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    patience_s: float = 600.0
    result_s: float = 3600.0
    probe_tolerance: float = 1e-4
    lease: Path | None = None
