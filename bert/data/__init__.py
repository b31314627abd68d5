"""Text to documents to instances to records to batches."""
