"""Where a run's progress is kept: a folder, or S3 and what speaks like it."""
