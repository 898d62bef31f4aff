"""Index files of other loaders."""
