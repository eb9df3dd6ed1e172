"""Human names of runs: an adjective and an animal, unique within a workspace."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.runs.models import Run

ADJECTIVES = ["agile", "amber", "ample", "azure", "blithe", "bold", "brave", "breezy", "bright", "brisk", "calm", "candid", "careful", "cheerful", "clever", "cosmic", "cosy", "crisp", "curious", "daring", "deft", "eager", "earnest", "easy", "elated", "fabled", "fair", "fleet", "fluent", "fond", "frank", "free", "fresh", "gentle", "glad", "golden", "graceful", "grand", "happy", "hardy", "honest", "humble", "jolly", "jovial", "keen", "kind", "lively", "lucid", "lucky", "lunar", "mellow", "merry", "mighty", "misty", "modest", "neat", "nimble", "noble", "patient", "placid", "plucky", "polite", "proud", "quick", "quiet", "rapid", "ready", "robust", "rosy", "rustic", "sage", "sandy", "serene", "sharp", "shiny", "silent", "silver", "sincere", "sleek", "smart", "snowy", "solar", "solid", "spry", "stable", "steady", "stellar", "sturdy", "sunny", "sure", "swift", "tender", "tidy", "tranquil", "trusty", "upbeat", "urban", "valiant", "vivid", "warm", "wise", "witty", "young", "zesty"]
ANIMALS = ["albatross", "alpaca", "antelope", "badger", "beaver", "bison", "bobcat", "buffalo", "camel", "caribou", "cheetah", "chinook", "cobra", "condor", "cormorant", "coyote", "crane", "cricket", "dolphin", "dove", "eagle", "egret", "eland", "elk", "falcon", "ferret", "finch", "firefly", "flamingo", "fox", "gannet", "gazelle", "gecko", "gibbon", "giraffe", "goose", "gopher", "grouse", "hare", "hawk", "hedgehog", "heron", "hornet", "ibex", "ibis", "iguana", "jackal", "jaguar", "kestrel", "kingfisher", "kiwi", "koala", "lark", "lemur", "leopard", "linnet", "lion", "llama", "lobster", "lynx", "magpie", "mallard", "manatee", "marmot", "marten", "merlin", "mole", "moose", "narwhal", "newt", "ocelot", "octopus", "okapi", "oriole", "osprey", "otter", "owl", "panda", "panther", "parrot", "pelican", "penguin", "petrel", "pigeon", "plover", "puffin", "puma", "quail", "rabbit", "raven", "robin", "salmon", "seal", "shark", "sparrow", "starling", "stork", "swallow", "swan", "tapir", "tern", "tiger", "toucan", "trout", "turtle", "viper", "walrus", "weasel", "whale", "wolf", "wombat", "wren", "yak", "zebra"]


def propose() -> str:
    """A random name such as `brave-otter`."""
    return f"{secrets.choice(ADJECTIVES)}-{secrets.choice(ANIMALS)}"


def unused_name(session: Session, workspace_id: str) -> str:
    """A name that no run of the workspace has. Call it inside the transaction that inserts the run."""
    candidates = {propose() for _ in range(16)}
    # Once nearly all pairs are taken a number keeps the name readable and the search short.
    candidates |= {f"{propose()}-{secrets.randbelow(9000) + 1000}" for _ in range(16)}
    taken = set(
        session.scalars(select(Run.name).where(Run.workspace_id == workspace_id, Run.name.in_(candidates)))
    )
    free = sorted(candidates - taken, key=len)
    if not free:  # 16 random numbers out of 9,000 times 10,000 pairs: all taken only if the table is full
        return f"{propose()}-{secrets.token_hex(6)}"
    return next((name for name in free if name.count("-") == 1), free[0])
