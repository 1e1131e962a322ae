"""Stands for a chat server and its program: `serve`, or llama-server's flags,
answers; `bench` prints a rate.  FAKE_FAILS=NAME: requests of that program's
server get 500."""
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = os.environ["FAKE_NAME"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, b'{"status":"ok"}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
            print(NAME, len(body["messages"][0]["content"].split()),
                  body["max_tokens"], body.get("cache_prompt"), file=log)
        if os.environ.get("FAKE_FAILS") == NAME:
            self.answer(500, b"{}")
            return
        count = body["max_tokens"]
        events = [{"choices": [{"delta": {"content": "x"}}]}] * count + [
            {"choices": [], "usage": {"prompt_tokens": 90,
                                      "completion_tokens": count}}]
        text = "".join(f"data: {json.dumps(e)}\n\n" for e in events)
        self.answer(200, (text + "data: [DONE]\n\n").encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


if "bench" in sys.argv:
    print('{"tokens_per_s": 1000}')
elif "--port" in sys.argv:
    print(NAME, *sys.argv[1:], file=open(os.environ["FAKE_LOG"], "a"))
    Server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])),
           Handler).serve_forever()
