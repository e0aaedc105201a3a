"""Transitions: cancel, expire, retry, pause, hand back, park, and what a run saves while it goes on."""
