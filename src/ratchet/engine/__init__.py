"""What runs jobs: passive parts with ``run_once``, driven by services."""
