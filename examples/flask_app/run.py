"""Start the application, with a worker beside it, on 127.0.0.1."""

import os

from shop import create_app, ratchet

if __name__ == "__main__":
    app = create_app()
    with ratchet.scheduler:  # a worker in this process; `flask --app shop ratchet worker` is one of its own
        app.run("127.0.0.1", int(os.environ.get("EXAMPLE_PORT", "8000")), threaded=True)
