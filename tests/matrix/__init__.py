"""The conformance kit and the lifecycle tests on other versions of servers, poolers, Python and drivers: ``make matrix``."""
