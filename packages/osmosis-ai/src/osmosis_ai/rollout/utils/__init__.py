"""Building blocks of rollout servers and backends."""
