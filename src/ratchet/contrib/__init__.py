"""
Doors to other people's software: each module needs the extra of its name (`webhook` and `email` need none), and nothing else imports it.

They use what applications use: the `Scheduler`, its events and its SPIs.
"""
