"""What is sealed in a job, a completion, a schedule and the rest, and what is shown where it cannot be opened."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ratchet.model.audit import AuditEntry
from ratchet.model.callbacks import NO_FACTS, failure_facts
from ratchet.model.claim import ClaimedJob, JobBody, RowFault
from ratchet.model.composition import Edge, ScheduleRecord, ScheduleSpec, SignalSpec
from ratchet.model.decision import (
    Completion,
    Decision,
    ErrorRecord,
    Fail,
    Reschedule,
    Retry,
    Succeed,
    Verdict,
)
from ratchet.model.errors import MissingKey, UnreadablePayload
from ratchet.model.job import (
    Alert,
    DeadLetter,
    DeadLetterGroup,
    Execution,
    JobRecord,
    JobResultRow,
    JobSpec,
    LogEntry,
    LogLine,
    Progress,
    StreamKey,
)
from ratchet.model.payload import encode, refuse_sealed
from ratchet.model.payload.envelope import SEALED, envelope, is_sealed, sealing_key
from ratchet.model.payload.tagging import DAMAGED, TAG
from ratchet.model.places import with_keys
from ratchet.model.status import JobType
from ratchet.stores.sealed.seals import (
    Seals,
    of_audit,
    of_edge,
    of_job,
    of_log_line,
    of_schedule,
    of_signal,
    why,
)

#: Stands for arguments that cannot be opened.
_NO_ARGUMENTS = encode((), {})

#: Stands for a value in plain text that is refused, where nothing else can say so: nobody has such a key.
_REFUSED = envelope("plain-text-is-refused", b"")

#: How many streams are remembered with the place of their keys.
REMEMBERED_STREAMS = 1000

_write = msgspec.json.encode
_read = msgspec.json.decode


def is_told_by_store(payload: str) -> bool:
    """
    True for the payload of a failure callback that a store made by itself, in which nothing is but what happened to the job.

    The arguments that a callback was given are among its params.
    """
    if is_sealed(payload):
        return False
    if payload == NO_FACTS:
        return True
    try:
        facts = _read(payload)["args"][0]
        message, kind, reason, attempts = (facts[name] for name in ("message", "type", "reason", "attempts"))
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError):
        return False
    if any(type(word) is not str for word in (message, kind, reason)) or type(attempts) is not int:
        return False
    return payload == failure_facts(message, kind, reason, attempts)


class Values:
    """Seals and opens the values of the store's contract."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        # The jobs of a bulk have one stream object, by which stores tell quickly that it is one.
        self._streams: dict[tuple[StreamKey, frozenset[str]], StreamKey] = {}

    # --- jobs on their way in -------------------------------------------------------------------

    def sealed_spec(self, spec: JobSpec) -> JobSpec:
        """*spec* with arguments, params and keys as they are stored."""
        seal, job_id = self._seals.seal, spec.job_id
        refuse_sealed(spec.payload, "arguments")  # of a schedule whose template could not be opened
        changes: dict[str, Any] = {"payload": seal(spec.payload, of_job(job_id, "payload"))}
        if spec.params is not None:
            refuse_sealed(spec.params, "params")
            changes["params"] = seal(spec.params, of_job(job_id, "params"))
        for name in ("business_key", "idempotency_key"):
            key = getattr(spec, name)
            if key is not None:
                changes[name] = self._seals.hashed(key)
        if self._seals.codec is not None:
            changes["stream"] = self._stream(spec.stream, changes["payload"], changes.get("params"))
        return replace(spec, **changes)

    def _stream(self, stream: StreamKey, *texts: str | None) -> StreamKey:
        """*stream*, at the place of the keys of these texts: nodes without them do not even look at it."""
        keys = frozenset(key for text in texts if (key := sealing_key(text)) is not None)
        known = self._streams.get((stream, keys))
        if known is None:
            if len(self._streams) >= REMEMBERED_STREAMS:
                self._streams.clear()
            known = replace(stream, parked_target=with_keys(stream.parked_target, keys))
            self._streams[stream, keys] = known
        return known

    def sealed_completion(self, completion: Completion) -> Completion:
        """*completion* with everything that jobs and their errors say sealed."""
        job_id = completion.claim.job_id
        changes: dict[str, Any] = {"decision": self._sealed_decision(completion.decision, job_id)}
        if completion.state is not None:
            changes["state"] = self.sealed_state(completion.state, job_id)
        if completion.callback is not None:
            changes["callback"] = self.sealed_spec(completion.callback)
        if completion.verdicts:
            changes["verdicts"] = tuple(self._sealed_verdict(verdict) for verdict in completion.verdicts)
        return replace(completion, **changes)

    def _sealed_decision(self, decision: Decision, job_id: UUID) -> Decision:
        if isinstance(decision, Succeed):
            if decision.result is None:
                return decision
            return replace(decision, result=self._seals.seal(decision.result, of_job(job_id, "result")))
        if isinstance(decision, Retry | Fail):
            return replace(decision, error=self._sealed_error(decision.error, job_id))
        if isinstance(decision, Reschedule) and decision.reason is not None:
            return replace(decision, reason=self._seals.keep(decision.reason, of_job(job_id, "error")))
        return decision

    def _sealed_error(self, error: ErrorRecord, job_id: UUID) -> ErrorRecord:
        keep, traceback = self._seals.keep, error.traceback
        return replace(
            error,
            message=keep(error.message, of_job(job_id, "error")),
            traceback=None if traceback is None else keep(traceback, of_job(job_id, "traceback")),
        )

    def _sealed_verdict(self, verdict: Verdict) -> Verdict:
        if verdict.error is None:
            return verdict
        return replace(verdict, error=self._sealed_error(verdict.error, verdict.child_id))

    def sealed_state(self, state: str, job_id: UUID) -> str:
        """A checkpoint."""
        return self._seals.seal(state, of_job(job_id, "state"))

    def sealed_progress(self, progress: Progress, job_id: UUID) -> Progress:
        """The message of a progress; how far it is stays readable."""
        if progress.message is None:
            return progress
        message = self._seals.keep(progress.message, of_job(job_id, "progress"))
        return Progress(fraction=progress.fraction, message=message)

    def sealed_entry(self, entry: LogEntry) -> LogEntry:
        """A log line; its level and its logger stay readable."""
        context = of_log_line(entry.job_id, entry.attempt, entry.at)
        return replace(entry, message=self._seals.keep(entry.message, context))

    def sealed_audit(self, entry: AuditEntry) -> AuditEntry:
        """An entry of the audit log: its reason, and the business key of its filter."""
        reason, where = entry.reason, entry.filter
        if where is not None and "business_key" in where:
            where = {**where, "business_key": self._seals.hashed(where["business_key"])}
        kept = None if reason is None else self._seals.keep(reason, of_audit(entry.id))
        return replace(entry, reason=kept, filter=where)

    def opened_audit(self, entry: AuditEntry) -> AuditEntry:
        """An entry of the audit log."""
        if entry.reason is None:
            return entry
        return replace(entry, reason=self._seals.show(entry.reason, of_audit(entry.id)))

    def sealed_signal(self, signal: SignalSpec) -> SignalSpec:
        """A signal; its key stays readable."""
        payload, rejected, key = signal.payload, signal.rejected, signal.key
        return replace(
            signal,
            payload=None if payload is None else self._seals.seal(payload, of_signal(key, "payload")),
            rejected=None if rejected is None else self._seals.seal(rejected, of_signal(key, "rejected")),
        )

    def sealed_edge(self, edge: Edge) -> Edge:
        """The argument of its condition."""
        condition = edge.condition
        if condition is None or condition.argument is None:
            return edge
        context = of_edge(edge.parent_id, edge.child_id)
        return replace(
            edge, condition=replace(condition, argument=self._seals.seal(condition.argument, context))
        )

    # --- schedules ------------------------------------------------------------------------------

    def sealed_schedule(self, spec: ScheduleSpec, held: ScheduleSpec | None) -> ScheduleSpec:
        """*spec* with the arguments of its runs sealed; if *held* says the same, with what is stored already."""
        is_sealed = held is not None and SEALED in held.template
        if held is not None and is_sealed and spec.template == held.template:
            return spec  # read without its key, and changed: it must not be sealed twice
        template = _read(spec.template)
        known = (self._opened_template(held) or {}) if held is not None and is_sealed else {}
        for name in ("business_key", "idempotency_key"):
            # Who changes a schedule has read the hash; it must not be hashed twice.
            if isinstance(template.get(name), str) and template[name] != known.get(name):
                template[name] = self._seals.hashed(template[name])
        if held is not None and self._opened_template(held) == template:
            return replace(spec, template=held.template)
        for field in ("payload", "params"):
            if isinstance(template.get(field), str):
                template[field] = self._seals.seal(template[field], of_schedule(spec.name, field))
        return replace(spec, template=_write(template).decode())

    def opened_schedule(self, record: ScheduleRecord) -> ScheduleRecord:
        """*record* as it was declared; what cannot be opened stays sealed, and no run is made of it."""
        if SEALED not in record.spec.template and not self._seals.is_strict:
            return record
        template = self._opened_template(record.spec)
        if template is None:
            template = self._refused_template(record.spec)
        if template is None:
            return record
        return replace(record, spec=replace(record.spec, template=_write(template).decode()))

    def _opened_template(self, spec: ScheduleSpec) -> dict[str, Any] | None:
        """None where it cannot be read or opened."""
        try:
            template: dict[str, Any] = _read(spec.template)
            for field in ("payload", "params"):
                if isinstance(template.get(field), str):
                    template[field] = self._seals.open(template[field], of_schedule(spec.name, field))
        except (msgspec.MsgspecError, UnreadablePayload, AttributeError, TypeError):
            return None
        return template

    def _refused_template(self, spec: ScheduleSpec) -> dict[str, Any] | None:
        """The template with what is in plain text, and must not be, taken out; None if there is no such thing."""
        try:
            template: dict[str, Any] = _read(spec.template)
            plain = [
                field
                for field in ("payload", "params")
                if isinstance(template.get(field), str) and not is_sealed(template[field])
            ]
        except (msgspec.MsgspecError, AttributeError):
            return None
        if not self._seals.is_strict or not plain:
            return None
        return {**template, **dict.fromkeys(plain, _REFUSED)}

    # --- jobs on their way out ------------------------------------------------------------------

    def opened_claim(self, job: ClaimedJob) -> ClaimedJob:
        """*job* with its body as it was submitted; marked as unreadable where that cannot be had."""
        if job.unreadable is not None:
            return job
        bad: dict[str, UnreadablePayload] = {}
        body = self.opened_body(job.body, bad, is_callback=job.claim.type is JobType.CALLBACK)
        if not bad:
            return ClaimedJob(claim=job.claim, body=body)
        missing = {key for error in bad.values() if isinstance(error, MissingKey) for key in error.keys}
        damaged = [field for field, error in bad.items() if not isinstance(error, MissingKey)]
        # A key that is missing here may be there on another node; damage is damage everywhere.
        keys = () if damaged else tuple(sorted(missing))
        text = ", ".join(f"its {field} is {why(bad[field])}" for field in damaged or bad)
        return ClaimedJob(claim=job.claim, body=body, unreadable=RowFault(text=text, missing_keys=keys))

    def opened_body(
        self, body: JobBody, bad: dict[str, UnreadablePayload], *, is_callback: bool = False
    ) -> JobBody:
        """*body* as it was submitted; *bad* gets what cannot be opened, which stays as it is."""
        changes: dict[str, Any] = {}
        job_id = body.job_id

        def opened(field: str, text: str | None, *contexts: bytes) -> None:
            if text is None or self._seals.takes_as_it_stands(text):
                return
            try:
                changes[field] = self._opened_by(text, *contexts)
            except UnreadablePayload as error:
                bad[field] = error

        if not (is_callback and is_told_by_store(body.payload)):
            opened("payload", body.payload, of_job(job_id, "payload"))
        if body.params is not None:
            contexts = [of_job(job_id, "params")]
            if is_callback and body.parent_id is not None:
                # A store that fails a job by itself gives the callback the params as they stand.
                contexts.append(of_job(body.parent_id, "params"))
            opened("params", body.params, *contexts)
        opened("state", body.state, of_job(job_id, "state"))
        if body.signal is not None and (self._seals.is_strict or SEALED in body.signal):
            try:
                changes["signal"] = self._opened_signal(body.signal)
            except UnreadablePayload as error:
                bad["signal"] = error
        if is_callback and body.parent_id is not None and SEALED in body.payload and "payload" not in changes:
            changes["payload"] = self._opened_facts(body.payload, body.parent_id)
        return replace(body, **changes) if changes else body

    def _opened_by(self, text: str, *contexts: bytes) -> str:
        """What one of these contexts opens; the error of the first if none does."""
        first: UnreadablePayload | None = None
        for context in contexts:
            try:
                return self._seals.open(text, context)
            except UnreadablePayload as error:
                first = first or error
        assert first is not None
        raise first

    def _opened_signal(self, text: str) -> str:
        try:
            stored = _read(text)
            for field in ("payload", "rejected"):
                if isinstance(stored.get(field), str):
                    stored[field] = self._seals.open(stored[field], of_signal(stored["key"], field))
        except (msgspec.MsgspecError, AttributeError, KeyError, TypeError) as error:
            raise UnreadablePayload("the delivered signal is damaged") from error
        return _write(stored).decode()

    def _opened_facts(self, text: str, parent_id: UUID) -> str:
        """What a store tells a failure callback: in plain text, but for the error, which is the job's."""
        try:
            stored = _read(text)
            facts = stored["args"][0]
            facts["message"] = self._seals.show(facts["message"], of_job(parent_id, "error"))
        except (msgspec.MsgspecError, AttributeError, KeyError, IndexError, TypeError):
            return text
        return _write(stored).decode()

    def opened_record(self, record: JobRecord) -> JobRecord:
        """*record* for people: what cannot be opened is named in ``unreadable``."""
        changes: dict[str, Any] = {}
        bad = dict(record.unreadable)
        job_id = record.job_id
        contexts = {field: [of_job(job_id, field)] for field in ("payload", "params", "state", "result")}
        if record.type is JobType.CALLBACK and record.parent_id is not None:
            contexts["params"].append(of_job(record.parent_id, "params"))
        for field, instead in (
            ("payload", _NO_ARGUMENTS),
            ("params", None),
            ("state", None),
            ("result", None),
        ):
            text = getattr(record, field)
            if text is None or self._seals.takes_as_it_stands(text):
                continue
            if field == "payload" and record.type is JobType.CALLBACK and is_told_by_store(text):
                continue
            try:
                changes[field] = self._opened_by(text, *contexts[field])
            except UnreadablePayload as error:
                changes[field], bad[field] = instead, why(error)
        is_of_store = record.type is JobType.CALLBACK and "payload" not in changes
        if is_of_store and record.parent_id is not None and SEALED in record.payload:
            changes["payload"] = self._opened_facts(record.payload, record.parent_id)
        if record.error is not None:
            changes["error"] = self._seals.show(record.error, of_job(job_id, "error"))
        if record.progress is not None and record.progress.message is not None:
            message = self._seals.show(record.progress.message, of_job(job_id, "progress"))
            changes["progress"] = Progress(fraction=record.progress.fraction, message=message)
        if bad:
            changes["unreadable"] = bad
        return replace(record, **changes) if changes else record

    def opened_row(self, row: JobResultRow) -> JobResultRow:
        """*row* with its result and its error; a result that cannot be opened raises where it is decoded."""
        changes: dict[str, Any] = {}
        if row.result is not None and not self._seals.takes_as_it_stands(row.result):
            try:
                changes["result"] = self._seals.open(row.result, of_job(row.job_id, "result"))
            except MissingKey:
                pass  # whoever decodes an envelope is told which key it needs
            except UnreadablePayload as error:
                changes["result"] = _write({TAG: DAMAGED, "v": str(error)}).decode()
        if row.error is not None:
            changes["error"] = self._seals.show(row.error, of_job(row.job_id, "error"))
        return replace(row, **changes) if changes else row

    # --- what is told about jobs ----------------------------------------------------------------

    def _error(self, text: str | None, job_id: UUID) -> str | None:
        return None if text is None else self._seals.show(text, of_job(job_id, "error"))

    def opened_execution(self, run: Execution) -> Execution:
        """A run, with its error and traceback."""
        if run.error is None and run.traceback is None:
            return run
        traceback = run.traceback
        if traceback is not None:
            traceback = self._seals.show(traceback, of_job(run.job_id, "traceback"))
        return replace(run, error=self._error(run.error, run.job_id), traceback=traceback)

    def opened_line(self, line: LogLine, job_id: UUID) -> LogLine:
        """A log line."""
        return replace(
            line, message=self._seals.show(line.message, of_log_line(job_id, line.attempt, line.at))
        )

    def opened_alert(self, alert: Alert) -> Alert:
        """An alert; its error is that of the job which raised it."""
        return replace(alert, error=self._error(alert.error, alert.job_id))

    def opened_letter(self, letter: DeadLetter) -> DeadLetter:
        """A dead letter with its alerts."""
        return replace(
            letter,
            error=self._error(letter.error, letter.job_id),
            alerts=tuple(self.opened_alert(alert) for alert in letter.alerts),
        )

    def opened_group(self, group: DeadLetterGroup) -> DeadLetterGroup:
        """A group of dead letters; its message is the error of its sample."""
        return replace(group, message=self._error(group.message, group.sample))

    def opened_edge(self, edge: Edge) -> Edge:
        """The argument of its condition; one that cannot be opened stays sealed, and fails the condition."""
        condition = edge.condition
        if condition is None or condition.argument is None:
            return edge
        if self._seals.takes_as_it_stands(condition.argument):
            return edge
        try:
            argument = self._seals.open(condition.argument, of_edge(edge.parent_id, edge.child_id))
        except UnreadablePayload:
            if is_sealed(condition.argument):
                return edge
            argument = _REFUSED
        return replace(edge, condition=replace(condition, argument=argument))
