"""The tree of spans in the docs is what the example beside it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_examples import ROOT, code_of

PAGE = Path("docs/how-to/tracing.md")


def test_the_tree_is_what_the_example_prints(tmp_path: Path) -> None:
    """From the request to the submission, its attempts, the step after it and the callback; the retry is linked."""
    (shown,) = re.findall(r"```text\n(POST .*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(code_of(PAGE))
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == shown
