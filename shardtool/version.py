"""The release; its own module, so that the build can read it without importing numpy."""

VERSION = "0.1.0"
