"""Start the service, with a worker in it, on 127.0.0.1."""

import os

import uvicorn

if __name__ == "__main__":
    uvicorn.run("service:app", host="127.0.0.1", port=int(os.environ.get("EXAMPLE_PORT", "8000")))
