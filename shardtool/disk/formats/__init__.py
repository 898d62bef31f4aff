"""The shard formats."""
