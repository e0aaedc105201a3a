"""One module per SQL product."""
