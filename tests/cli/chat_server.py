"""A server with one answer, in the manner of OpenAI's API.

    chat_server.py KIND LOG

Prints its port.  LOG gets the body of each request, a line each.  KIND:
"stream" answers, "refuse" has an error with words, "cut" ends early, "slow"
waits before the end.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

kind, log = sys.argv[1:]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps([self.path, json.loads(body),
                                   self.headers.get("Authorization")]) + "\n")
        if kind == "refuse":
            data = b'{"error": {"message": "no such model"}}'
            self.send_response(404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        deltas = [{"role": "assistant", "content": ""},
                  {"reasoning_content": "hm"}, {"content": "Two"},
                  {"content": " w\u00f6rds."}]
        for delta in deltas:
            chunk = {"choices": [{"index": 0, "delta": delta,
                                  "finish_reason": None}]}
            self.wfile.write(b": keepalive\n\ndata: " +
                             json.dumps(chunk).encode() + b"\r\n\r\n")
        if kind == "slow":
            self.wfile.flush()
            time.sleep(5)
        if kind == "cut":
            self.wfile.write(b"data: {\n\n")
            return
        self.wfile.write(b'data: {"choices": [{"delta": {}, "finish_reason": '
                         b'"stop"}]}\n\ndata: [DONE]\n\n')

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
