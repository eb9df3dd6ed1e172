"""Content-addressed blobs and signed URLs."""
