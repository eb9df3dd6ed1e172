"""From dataset rows to training rows: the data order, rollout attempts, prompt groups, the journal and the ledger."""
