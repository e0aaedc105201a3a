"""Databases that version 0.1.0 has made, as it left them."""
