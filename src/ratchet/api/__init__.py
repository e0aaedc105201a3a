"""What user code holds: builders, handles, the job context, events."""
