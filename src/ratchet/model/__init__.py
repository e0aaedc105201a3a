"""What is true: values, the state machine, decisions, errors, time. No I/O, no threads."""
