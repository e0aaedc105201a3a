"""Permits: resource limits, rates, circuit breakers, and what they hold back."""
