"""Kombu's connection to Redis, with a bound on the bytes of an answer: a longer one is not even kept.

Kombu reads a message, parses it and decodes its body before anybody can look at its length, so 100 MB in a
queue take several times as much memory. Redis' protocol says the length of a text before its bytes: one that
is too long is read and dropped piece by piece, and the connection stays usable.

This is the only module of the wire that imports Kombu and Redis; both ends connect through it.
"""

import logging
import uuid
from typing import Any, Final

from kombu import Connection, Exchange, Queue
from kombu.transport import redis as kombu_redis
from redis._parsers import _RESP2Parser
from redis._parsers.socket import SocketBuffer
from redis.exceptions import ConnectionError as LostError

from agent.wire.logs import RareLog
from agent.wire.queue import MAX_MARKS, MAX_RAW_BYTES

_SMALL_BYTES: Final = 1 << 16
"""Bytes of a text up to which its form does not matter, since parsing it takes 2 MB at most; also the bytes
of a text that is too long which are held at once, until they are dropped."""
_QUOTED_CHARACTERS: Final = 80
"""Characters of a message that is not JSON which its line in the log quotes."""
_LINE_END_BYTES: Final = 2
"""Bytes of the line end that follows every text of Redis' protocol."""


log = logging.getLogger(__name__)


class _BoundedBuffer(SocketBuffer):
    """Bytes from a socket. A text of more than `MAX_RAW_BYTES` is dropped while it arrives."""

    def read(self, length: int, *args: Any, **kwargs: Any) -> bytes:
        """Return a text of this length, or what says of it that it is no message of ours."""
        if length > MAX_RAW_BYTES:
            self._drop(length + _LINE_END_BYTES)
            return b"a message of %d bytes; the limit is %d" % (length, MAX_RAW_BYTES)
        text = super().read(length, *args, **kwargs)
        if length > _SMALL_BYTES and sum(map(text.count, (b"[", b"{", b","))) > MAX_MARKS:
            return b"a message with more than %d brackets and commas" % MAX_MARKS
        return text

    def _drop(self, left: int) -> None:
        # All that is buffered is of this text, which is far longer
        # than the buffer: nothing behind it is lost.
        left -= len(self._buffer.read(left))
        self._buffer.seek(0)
        self._buffer.truncate()
        while left > 0:
            piece = len(self._sock.recv(min(left, _SMALL_BYTES)))
            if not piece:
                raise LostError("the connection ended within an answer")
            left -= piece


class _BoundedParser(_RESP2Parser):
    """Redis' protocol in version 2, read through a buffer with a bound."""

    def on_connect(self, connection: Any) -> None:
        """Begin to read from a new connection."""
        super().on_connect(connection)  # type: ignore[no-untyped-call]  # the client's own
        # In place of the buffer without a bound that the parent class has just made.
        self._buffer = _BoundedBuffer(connection._sock, self.socket_read_size, connection.socket_timeout)


class _Channel(kombu_redis.Channel):
    """A channel that drops what is not a message, and goes on with the next one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._dropped = RareLog(log, "messages that are dropped")
        super().__init__(*args, **kwargs)

    def let_go(self) -> None:
        """Close the sockets, and forget what Kombu does at the end of the process: until then it would keep a
        channel that could not be closed, and its connections.
        """
        if self._qos is not None:
            self._qos._on_collect.cancel()  # type: ignore[attr-defined]  # its stubs lack it
        self._disconnect_pools()  # type: ignore[attr-defined]  # its stubs lack it
        self._close_clients()  # type: ignore[attr-defined]  # as above

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]  # its stubs lack it
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            begin = str(getattr(error, "doc", ""))[:_QUOTED_CHARACTERS]
            self._dropped.warning(f"a message from the broker is dropped: {error!r:.200}: {begin!r}")
            # As after a delivery: Kombu then asks for the next message.
            return True

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]  # its stubs lack it
        # The version is given because the parser reads this one alone.
        return found | {"protocol": 2, "parser_class": _BoundedParser}


class _Transport(kombu_redis.Transport):
    Channel = _Channel

    def close_connection(self, connection: Any) -> None:
        """Close all channels. Kombu stops at the first error, such as a broker's that refuses writes."""
        channels: list[_Channel] = [*self._avail_channels, *self.channels]  # type: ignore[attr-defined, misc]  # as above
        try:
            super().close_connection(connection)
        finally:
            for channel in channels:
                channel.let_go()

    def _deliver(self, message: Any, queue: str | None) -> None:
        # Where a message is put back after a crash, and the name under which it is kept until then, are not
        # for its sender to say: they could be another agent's queue, and another message's name.
        origin = {"exchange": "", "routing_key": queue}
        message["properties"] |= {"delivery_info": origin, "delivery_tag": str(uuid.uuid4())}
        super()._deliver(message, queue)


class BoundedConnection(Connection):
    """A connection to Redis whatever its URL says; Kombu's options apply."""

    def get_transport_cls(self) -> type[kombu_redis.Transport]:
        """Return Kombu's transport for Redis, with bounds."""
        return _Transport


def direct_queue(name: str) -> Queue:
    """Return a list in Redis, reached by its name alone: no exchange, no binding."""
    return Queue(name, Exchange("", type="direct"), routing_key=name, durable=True)
