"""
The commands that look at jobs and change them: one file per noun, each a group of ``ratchet <noun> <verb>``.

A command opens a `Scheduler` on the store (`parameters.opened`), calls its verbs, and prints the answer
through `output.Output`. `app.py` puts the commands together.
"""
