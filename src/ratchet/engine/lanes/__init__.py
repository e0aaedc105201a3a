"""Where jobs run: threads, the event loop, processes; or the calling thread in tests."""
