"""
How alerts leave the house; `ratchet.contrib.webhook` and `ratchet.contrib.email` are the doors.

Enter at `notifier`: it turns alerts and events into jobs, and these jobs send. `messages` finds the words, `grouping` makes one message of
many events, `delivery` is what a door has to bring.
"""
