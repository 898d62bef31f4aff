"""Engines choose only the order in which bytes move: all of them write the same bytes.

ENGINES: name -> function (CopyJob, shard number, advance) -> Receipt
"""

from .gather import write_shard as gather

ENGINES = {"gather": gather}
