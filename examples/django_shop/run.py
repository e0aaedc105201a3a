"""Make the tables, start a worker, and serve the shop on 127.0.0.1."""

import os
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).parent
    manage = [sys.executable, str(here / "manage.py")]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)
    worker = subprocess.Popen([*manage, "ratchet", "worker"])
    try:
        address = f"127.0.0.1:{os.environ.get('EXAMPLE_PORT', '8000')}"
        subprocess.run([*manage, "runserver", "--noreload", "--insecure", address], check=False)
    except KeyboardInterrupt:
        pass
    finally:
        worker.terminate()
        worker.wait()
