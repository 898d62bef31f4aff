"""The policies that decide which bytes of an input come out, as one value that a scan is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """What to do with legal but odd, and with damaged input. Field names are those of the options.

    on_corrupt       'error' stops; 'skip' keeps every frame that is intact where it is expected; 'resync' also
                     searches on for the next valid frame
    on_duplicate     the same field twice in one sample: 'error', or keep the 'first' or the 'last'
    on_unsafe_name   absolute member names and '..': 'error', or 'skip' (ignored and counted)
    group            'adjacent': members of a sample must be neighbours; 'archive': collected over the archive
    ignore_zeros     read on behind an end-of-archive marker, as GNU tar -i
    ignore_trailing  ignore whatever follows the end-of-archive marker
    allow_case_collision  fields of one sample that differ by letter case only
    require          fields that every sample must have
    strict           warnings of policy become errors
    verify           check payload checksums of TFRecords (those of lengths are always checked)
    label            field (tar) or feature (tf.train.Example) whose value is the label, or None
    """

    on_corrupt: str = "error"
    on_duplicate: str = "error"
    on_unsafe_name: str = "error"
    group: str = "adjacent"
    ignore_zeros: bool = False
    ignore_trailing: bool = False
    allow_case_collision: bool = False
    require: tuple[bytes, ...] = ()
    strict: bool = False
    verify: bool = True
    label: str | None = None
