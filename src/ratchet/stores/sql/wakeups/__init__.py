"""How processes on one SQL database learn of each other's new work; one module per product."""
