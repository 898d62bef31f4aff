"""Which names a reader is known not to read right: wids takes the name field of a tar header for the whole name."""


def readable(reader, flavour):
    """Whether it reads this flavour right."""
    return not (reader == "wids" and flavour in ("prefixed", "long (GNU)"))
