"""
Alerts by e-mail: ``notify(scheduler, host, sender=..., recipients=[...])``.

Each mail is sent by a job: it is stored, retried and seen like every other.
"""

from __future__ import annotations

import logging
import smtplib
import ssl
from collections.abc import Iterable
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from enum import StrEnum

from ratchet.contrib.alerting.delivery import DeliveryFailed, DeliveryRefused, without
from ratchet.contrib.alerting.messages import MOST_TITLE, Message, one_line
from ratchet.contrib.alerting.notifier import MAX_RETRIES, Destination, Notifier
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import ConfigurationError
from ratchet.model.events import Event
from ratchet.scheduler import Scheduler

__all__ = ["Security", "notify"]

logger = logging.getLogger("ratchet.alerts")

#: Recipients of one mail.
MOST_RECIPIENTS = 100
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Security(StrEnum):
    """How the connection to the mail server is protected."""

    STARTTLS = "starttls"
    SSL = "ssl"
    NONE = "none"


_PORTS = {Security.STARTTLS: 587, Security.SSL: 465, Security.NONE: 25}


def notify(
    scheduler: Scheduler,
    host: str,
    events: Iterable[type[Event]] | None = None,
    *,
    sender: str,
    recipients: Iterable[str],
    port: int | None = None,
    security: Security | str = Security.STARTTLS,
    username: str | None = None,
    password: str | None = None,
    name: str = "email",
    label: str | None = None,
    queue: str | None = None,
    timeout: Duration = 30,
    max_retries: int = MAX_RETRIES,
    tls: ssl.SSLContext | None = None,
) -> Notifier:
    """
    Mail alerts of *scheduler* to *recipients* from every node that it starts from now on.

    *host*, *port*: of the mail server (587 for STARTTLS, 465 for SSL, 25 without); *events*: which (None: dead letters, one mail for
    each cause and hour); *name*: of this destination, in the name of its jobs; *label*: put in front of every subject; *queue*: of
    its jobs. Neither the server nor the password nor an address is stored.
    """
    patience = to_timedelta(timeout, "the timeout", zero=False)
    transport = Mail(
        host,
        sender=sender,
        recipients=recipients,
        port=port,
        security=security,
        username=username,
        password=password,
        timeout=patience.total_seconds(),
        tls=tls,
    )
    destination = Destination.checked(
        transport,
        name=name,
        events=events,
        label=label,
        queue=queue,
        # A mail takes several answers of the server, each of which may take so long.
        timeout=4 * patience,
        max_retries=max_retries,
    )
    return Notifier(scheduler, destination)


class Mail:
    """Sends messages through one mail server."""

    def __init__(
        self,
        host: str,
        *,
        sender: str,
        recipients: Iterable[str],
        port: int | None = None,
        security: Security | str = Security.STARTTLS,
        username: str | None = None,
        password: str | None = None,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not isinstance(host, str) or not host or not host.isprintable() or " " in host:
            raise ConfigurationError(
                "the mail server is named by its host, such as 'smtp.example.com'; pass port= beside it"
            )
        try:
            self._security = Security(security)
        except ValueError:
            raise ConfigurationError(
                f"security is 'starttls', 'ssl' or 'none', not {security!r:.50}"
            ) from None
        if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536):
            raise ConfigurationError(f"a port is a number from 1 to 65535, not {port!r:.50}")
        if (username is None) != (password is None):
            raise ConfigurationError("a login needs both username and password")
        if username is not None and self._security is Security.NONE and host not in _LOOPBACK:
            raise ConfigurationError(
                "without STARTTLS or SSL the password would be readable on its way; choose one of them"
            )
        self._host, self._port = host, port or _PORTS[self._security]
        self._sender = _mailbox(sender, "the sender")
        if isinstance(recipients, str) or not isinstance(recipients, Iterable):
            raise ConfigurationError("recipients is a list of addresses")
        self._recipients = tuple(_mailbox(one, "a recipient") for one in recipients)
        if not 0 < len(self._recipients) <= MOST_RECIPIENTS:
            raise ConfigurationError(f"a mail has 1 to {MOST_RECIPIENTS} recipients")
        self._login = None if username is None or password is None else (username, password)
        self._timeout = timeout
        self._tls = tls

    def __repr__(self) -> str:
        return f"Mail({len(self._recipients)} recipients)"

    def send(self, message: Message) -> None:
        """Mail *message* to all recipients; it is taken once the server has taken it for one of them."""
        try:
            mail = self._mail(message)
            with self._connected() as server:
                refused = server.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            kind = DeliveryRefused if all(code >= 500 for code in codes) else DeliveryFailed
            raise kind(f"the mail server refused every recipient: {sorted(set(codes))}") from None
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error
            text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
            kind = DeliveryRefused if error.smtp_code >= 500 else DeliveryFailed
            raise kind(f"the mail server answered {error.smtp_code}: {self._hide(text)}") from None
        except smtplib.SMTPNotSupportedError as error:
            raise DeliveryRefused(f"the mail server cannot do this: {self._hide(str(error))}") from None
        except (MessageError, ValueError) as error:
            raise DeliveryRefused(f"the mail could not be written: {self._hide(str(error))}") from None
        except (OSError, smtplib.SMTPException) as error:
            text = f"{type(error).__name__}: {self._hide(str(error))}"
            # Without its cause, whose text may have the name of the server in it.
            raise DeliveryFailed(f"the mail server was not reached: {text}") from None
        if refused:
            logger.warning("the mail server refused %d of %d recipients", len(refused), len(self._recipients))

    def _connected(self) -> smtplib.SMTP:
        if self._security is Security.SSL:
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=self._timeout, context=self._context()
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self._timeout)
        try:
            if self._security is Security.STARTTLS:
                server.starttls(context=self._context())
            if self._login is not None:
                server.login(*self._login)
        except BaseException:
            server.close()
            raise
        return server

    def _context(self) -> ssl.SSLContext:
        return self._tls or ssl.create_default_context()

    def _mail(self, message: Message) -> EmailMessage:
        """
        *message* as a mail.

        The policy refuses a header with a line break in it; the title has none, whatever an error said. An encoded word
        (``=?utf-8?q?=0A?=``) would be decoded into one, so that nothing may look like one.
        """
        mail = EmailMessage(policy=SMTP)
        mail["Subject"] = one_line(message.title, MOST_TITLE).replace("=?", "= ?")
        mail["From"] = self._sender
        mail["To"] = self._recipients
        mail["Date"] = format_datetime(message.at)
        # The same however often it is sent, so that a mailbox can tell that it has it already.
        mail["Message-ID"] = f"<{message.id}@ratchet.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Ratchet-Event"] = message.event
        text = "\n".join((message.title, "", *message.lines, ""))
        mail.set_content(text.encode(errors="replace").decode())
        return mail

    def _hide(self, text: str) -> str:
        addresses = [address.addr_spec for address in (self._sender, *self._recipients)]
        return without([self._host, *(self._login or ()), *addresses], text)


def _mailbox(text: object, what: str) -> Address:
    """*text* as the one address that it is."""
    try:
        if not isinstance(text, str) or not text.isprintable() or text.count("@") != 1:
            raise ValueError
        name, _, spec = text.rpartition("<") if text.endswith(">") else ("", "", text)
        return Address(display_name=name.strip().strip('"'), addr_spec=spec.removesuffix(">").strip())
    except (ValueError, MessageError, IndexError):
        raise ConfigurationError(
            f"{what} is one address, such as 'ops@example.com' or 'Operations <ops@example.com>'"
        ) from None
