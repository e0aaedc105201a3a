"""Whole clusters in one thread, on a manual clock, with an order of steps that a seed decides."""
