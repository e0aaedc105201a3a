"""Jobs that this program cannot read can still be looked at."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet import Options, new_id
from ratchet.model.job import JobSpec
from ratchet.model.payload import StoredObject
from ratchet.testing import manual_scheduler


class TestDamagedJobs:
    @pytest.mark.parametrize(
        ("payload", "args"),
        [
            ('{"args":[{"$":"dataclass","t":"gone:Receipt","v":{"number":1}}],"kwargs":{}}', None),
            ('{"args":[{"$":"unheard-of"}],"kwargs":{}}', ({"$": "unheard-of"},)),
            ('{"answer":42}', ({"answer": 42},)),
            ("not json", ("not json",)),
        ],
    )
    def test_a_payload_that_cannot_be_read_is_shown(self, payload: str, args: Any) -> None:
        """A job of another program, or of code that is gone, can still be looked at."""
        scheduler = manual_scheduler(allow=["shop"], options=Options())
        spec = JobSpec(
            job_id=new_id(), target="gone:job", payload=payload, scheduled_at=scheduler.backend.now()
        )
        scheduler.store.insert([spec], now=scheduler.backend.now())
        job = scheduler.jobs.get(spec.job_id)
        if args is None:
            assert isinstance(job.args[0], StoredObject)
        else:
            assert job.args == args
