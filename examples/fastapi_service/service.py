"""A FastAPI service: an order and its job are one transaction, and the browser sees the progress of the job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ratchet import JobContext, JobNotFound, Options, Scheduler, dashboard
from ratchet.contrib.prometheus import instrument
from ratchet.contrib.starlette import lifespan

URL = os.environ.get("EXAMPLE_URL", "sqlite:///fastapi_service.db")
ASYNC_URL = URL.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+asyncpg:")

scheduler = Scheduler(URL, options=Options(auto_migrate=True))
engine = create_async_engine(ASYNC_URL)
registry = CollectorRegistry()
instrument(scheduler, registry=registry)


class Base(DeclarativeBase):
    """The tables of the service."""


class Order(Base):
    """What was ordered."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)


@scheduler.job(max_retries=3, tags=["orders"])
async def pack(number: int) -> str:
    """Three steps, and the progress after each."""
    ctx = JobContext.current()
    for step, name in enumerate(("picked", "packed", "labeled"), start=1):
        await ctx.aio.progress(step / 3, name)
    return f"order {number} is packed"


@asynccontextmanager
async def tables(app: FastAPI) -> AsyncIterator[None]:
    """Make the tables before the first request."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan(scheduler, worker=True, then=tables))
app.mount("/dashboard", dashboard.asgi(scheduler))  # without authorize= it serves this machine only


@app.post("/orders/{number}")
async def place(number: int) -> dict[str, str]:
    """Store the order and its job, both or neither."""
    try:
        async with AsyncSession(engine) as session, session.begin():
            session.add(Order(number=number))
            await session.flush()
            handle = await scheduler.aio.enqueue(pack, number).submit(within=session)
    except IntegrityError:
        raise HTTPException(409, f"there is an order {number} already") from None
    return {"job": str(handle.id)}


@app.get("/jobs/{job_id}")
async def status(job_id: str) -> dict[str, object]:
    """Where a job is."""
    job = await scheduler.aio.jobs.get(job_id)
    return {"status": job.status, "result": job.result}


@app.get("/jobs/{job_id}/events")
async def events(job_id: str) -> StreamingResponse:
    """The progress of a job, as server-sent events, until it has ended."""

    async def stream() -> AsyncIterator[str]:
        told = ""
        while True:
            try:
                job = await scheduler.aio.jobs.get(job_id)
            except JobNotFound:
                return
            line = f"data: {job.status} {job.progress.message if job.progress else ''}\n\n"
            if line != told:
                told = line
                yield line
            if job.status.is_terminal:
                return
            await asyncio.sleep(0.2)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/metrics")
async def metrics() -> PlainTextResponse:
    """For Prometheus."""
    return PlainTextResponse(generate_latest(registry).decode())
