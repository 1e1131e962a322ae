"""A server for `quern bench --server`: answers many clients at a time.

    load_server.py KIND LOG

Prints its port.  LOG gets the body of each request, a line each, and how many
were at work at that time.  KIND: "stream" sends eight words, 10 ms apart, the
first after 30 ms; "mixed" refuses each third request with 503, cuts each third
short, and answers the others; "error" sends an error event.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

kind, log = sys.argv[1:]
lock = threading.Lock()
seen = active = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_POST(self):
        global seen, active
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            seen += 1
            active += 1
            number = seen
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps([self.path, body, active]) + "\n")
        try:
            self.answer(number)
        finally:
            with lock:
                active -= 1

    def answer(self, number):
        if kind == "mixed" and number % 3 == 0:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if kind == "error":
            self.event({"error": {"message": "out of luck"}})
            return
        self.event({"choices": [{"delta": {"role": "assistant"}}]})
        time.sleep(0.03)
        for i in range(8):
            if i:
                time.sleep(0.01)
            self.event({"choices": [{"delta": {"content": f"w{i} "}}]})
            if kind == "mixed" and number % 3 == 1 and i == 3:
                return
        self.event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        self.event({"choices": [], "usage": {"completion_tokens": 8}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
