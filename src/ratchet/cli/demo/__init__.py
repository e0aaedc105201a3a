"""A tiny shop that shows, within half a minute, what Ratchet does; it is a check as well as a show."""
