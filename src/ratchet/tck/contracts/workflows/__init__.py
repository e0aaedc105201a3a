"""Workflows: how a parent's end settles its edges, and what that does to those who wait."""
