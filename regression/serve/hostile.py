#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Clients that are slow, wrong, rude or many: the server neither crashes nor leaks, its memory stays
bounded, and other clients are served meanwhile. regression/sanitize runs this with sanitizers.

    hostile.py TRSHARD TRSHARD-SERVE [TEST]
"""
import os
import random
import resource
import socket
import struct
import time

import served
from serve import EVERYONE, train, wait_until
from served import Client, metric, request, serving

INFER = b"POST /v2/models/model/infer HTTP/1.1\r\nHost: a\r\n"
LONG = bool(os.environ.get("TRS_LONG"))


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=served.PATIENCE_S)


def head(length, headers=()):
    return INFER + b"Content-Length: %d\r\n" % length + b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in dict(headers).items()) + b"\r\n"


def read_all(connection):
    """What the server sends until it closes the connection."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def still_serves(port):
    found, _ = Client(port).infer(EVERYONE[:3])
    assert found.shape == (3, 1)


def slow_bytes(folder, timeout, whole):
    """Send bytes now and then until the server has closed the connections. Returns the client's longest silence in seconds."""
    with serving(folder, f"-model model.h5 -serve_timeout_seconds {timeout}") as (port, _):
        begin = last = time.monotonic()
        slow, silence = [connect(port) for _ in range(4)], 0.0
        slow[2].sendall(whole[:3000])
        ends = {}
        while len(ends) < 3:
            assert time.monotonic() < begin + served.PATIENCE_S, f"still open: {set(range(3)) - set(ends)}"
            for i in set(range(3)) - set(ends):
                try:
                    slow[i].sendall(whole[len(ends):len(ends) + 1] if i < 2 else b" ")
                except OSError:
                    ends[i] = time.monotonic() - begin
            silence, last = max(silence, time.monotonic() - last), time.monotonic()
            still_serves(port)
            time.sleep(0.2)
        assert silence >= 0.8 * timeout or min(ends.values()) > 1.5 * timeout, ends
        client = Client(port)
        wait_until(lambda: metric(client, "connections") == 1)
        assert metric(client, "body_bytes") == 0
    return silence


def test_slow(folder):
    """A client that sends a byte now and then, in the headers or in the body, loses its connection
    after twice the timeout. Others are served meanwhile, and a stop does not wait for such a
    client."""
    train(folder)
    body, _ = request(EVERYONE)
    whole = head(len(body)) + body
    for timeout in (1, 4, 12):  # seconds; on a busy machine, this client may rest for as long
        if slow_bytes(folder, timeout, whole) < 0.8 * timeout:
            break
    else:
        raise AssertionError("the machine is too busy: the slow client was silent for longer than the timeout")
    with serving(folder, "-model model.h5 -serve_drain_seconds 0.5") as (port, _):
        slow = connect(port)
        slow.sendall(whole[:3000])
        still_serves(port)
        begin = time.monotonic()
    assert time.monotonic() - begin < 20, "the stop waited for a slow client"


def test_rude(folder):
    """Half-closed and broken connections, pipelining, chunks, huge headers, and bytes that are no
    HTTP."""
    train(folder)
    body, _ = request(EVERYONE[:2])
    with serving(folder, "-model model.h5 -serve_header_bytes 8KiB -serve_request_bytes 64KiB -serve_timeout_seconds 5") as (port, _):
        with connect(port) as half: # the client has said all, and still reads
            half.sendall(head(len(body)) + body)
            half.shutdown(socket.SHUT_WR)
            assert half.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        for cut in (10, len(head(len(body))), len(head(len(body))) + 20): # the client ends in the middle
            with connect(port) as gone:
                gone.sendall((head(len(body)) + body)[:cut])
        for _ in range(50): # the client resets the connection, while its request waits or is answered
            gone = connect(port)
            gone.sendall(head(len(body)) + body)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
        with connect(port) as many:
            many.sendall((head(len(body)) + body) * 5 + b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert read_all(many).count(b"HTTP/1.1 200 ") == 6
        chunked = INFER + b"Transfer-Encoding: chunked\r\n\r\n"
        for parts, status in ((b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), b"200"), (b"zz\r\n", b"400"), (b"10000\r\n" + b" " * 65536 + b"\r\n1\r\n \r\n0\r\n\r\n", b"413")):
            with connect(port) as one:
                one.sendall(chunked + parts)
                assert one.recv(1 << 16).startswith(b"HTTP/1.1 " + status), status
        with connect(port) as expects:
            expects.sendall(INFER + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
            assert expects.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
        for wrong in (b"x-a: " + b"y" * 100000, b"".join(b"x-%d: y\r\n" % i for i in range(20000))):
            with connect(port) as large:
                try:
                    large.sendall(INFER + wrong + b"\r\n\r\n")
                    found = read_all(large)
                except OSError:
                    found = b""
                assert not found or found.startswith(b"HTTP/1.1 4"), found[:100]
        noise = random.Random(3)
        for _ in range(200):
            with connect(port) as odd:
                try:
                    odd.sendall(noise.randbytes(noise.randrange(1, 300)) + noise.choice([b"", b"\r\n\r\n"]))
                    odd.shutdown(socket.SHUT_WR) # and close it without reading
                except OSError:
                    pass
        for lengths in (b"-1", b"1e9", b"99999999999999999999999", b""):
            with connect(port) as odd:
                odd.sendall(INFER + b"Content-Length: " + lengths + b"\r\n\r\n")
                assert not odd.recv(1 << 16).startswith(b"HTTP/1.1 200"), lengths
        still_serves(port)
        client = Client(port)
        wait_until(lambda: metric(client, "requests_in_progress") == 0 and metric(client, "body_bytes") == 0)


def test_damaged(folder):
    """Requests with random changes get an answer or a refusal, and the memory of the server does not
    grow with them."""
    train(folder)
    noise = random.Random(5)
    with serving(folder, "-model model.h5") as (port, process):
        resident = []
        for turn in range(6):
            for _ in range(1000 if LONG else 100):
                body, headers = request(EVERYONE[:noise.randrange(1, 9)], noise.random() < 0.5)
                body = bytearray(body)
                for _ in range(noise.choice([0, 1, 1, 2, 8])):
                    at = noise.randrange(len(body))
                    change = noise.choice([b"", b"-", b"9" * 30, b"[", b"null", b"\xff", b"NaN", b'"', bytes([noise.randrange(256)])])
                    body[at:at + noise.choice([0, 1, 1, 5])] = change
                client = Client(port)
                status, _, answer = client.ask("POST", "/v2/models/model/infer", bytes(body), headers)
                assert status in (200, 400, 413) and answer, (status, bytes(body))
                client.connection.close()
            with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
                resident.append(int(file.read().split()[1]) * resource.getpagesize())
        sanitized = "TRS_SANITIZED" in os.environ # sanitizers keep freed memory for a while
        assert sanitized or resident[-1] - resident[1] < 4 << 20, [r >> 10 for r in resident]
        still_serves(port)


def test_many(folder):
    """More connections than the server takes at a time: the others wait for a place. Memory is
    bounded."""
    train(folder)
    places = 10000 if LONG else 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    places = min(places, hard // 2 - 100)
    with serving(folder, f"-model model.h5 -serve_connections {places} -serve_timeout_seconds 60") as (port, process):
        idle = [connect(port) for _ in range(places - 1)]
        client = Client(port)
        wait_until(lambda: metric(client, "connections") == places)
        waiting = connect(port)
        waiting.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        waiting.settimeout(0.3)
        try:
            assert not waiting.recv(100), "a connection beyond -serve_connections was served"
        except TimeoutError:
            pass
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            status = file.read()
        threads = int(status.split("Threads:")[1].split()[0])
        found, _ = client.infer(EVERYONE)
        assert found.shape == (len(EVERYONE), 1) and threads <= 4, threads
        for one in idle:
            one.close()
        waiting.settimeout(served.PATIENCE_S)
        assert waiting.recv(100).startswith(b"HTTP/1.1 200")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    served.run_tests(globals())
