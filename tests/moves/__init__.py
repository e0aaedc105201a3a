"""Moves of whole stores: between any two products, killed at any point, to files and back."""
