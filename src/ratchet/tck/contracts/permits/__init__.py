"""
Permits: resource limits, rates and circuit breakers, and which jobs they hold back.

`limits` is about running at once and starting per period, `breakers` about circuit breakers and their probes.
"""
