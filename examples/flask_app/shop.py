"""A Flask application: a factory, an extension, and jobs that use the application as a view does."""

from __future__ import annotations

import os

from flask import Flask, Response, abort, current_app
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from ratchet import dashboard
from ratchet.contrib.flask import Ratchet
from ratchet.contrib.prometheus import instrument

ratchet = Ratchet()
registry = CollectorRegistry()
instrument(ratchet.scheduler, registry=registry)


@ratchet.scheduler.job(max_retries=3)
def invoice(number: int) -> str:
    """Runs inside the application context."""
    return f"{current_app.config['SHOP']}: invoice for order {number}"


def create_app(url: str | None = None) -> Flask:
    """The application, on the database of *url* or of EXAMPLE_URL."""
    app = Flask("shop")
    url = url or os.environ.get("EXAMPLE_URL", "sqlite:///flask_app.db")
    app.config.update(SHOP="Ann's", RATCHET_URL=url, RATCHET_OPTIONS={"auto_migrate": True})
    ratchet.init_app(app)
    ratchet.scheduler.migrate()  # before the first transaction that a job joins
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY)"))

    @app.post("/orders/<int:number>")
    def place(number: int) -> dict[str, str]:
        """Store the order and its job, both or neither."""
        try:
            with Session(engine) as session, session.begin():
                session.execute(text("INSERT INTO orders VALUES (:number)"), {"number": number})
                handle = invoice.enqueue(number).submit(within=session)
        except IntegrityError:
            abort(409, f"there is an order {number} already")
        return {"job": str(handle.id)}

    @app.get("/jobs/<job_id>")
    def status(job_id: str) -> dict[str, object]:
        job = ratchet.scheduler.jobs.get(job_id)
        return {"status": job.status, "result": job.result}

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), mimetype="text/plain")

    # without authorize= the dashboard serves this machine only
    app.wsgi_app = DispatcherMiddleware(  # type: ignore[method-assign]
        app.wsgi_app, {"/dashboard": dashboard.wsgi(ratchet.scheduler)}
    )
    return app
