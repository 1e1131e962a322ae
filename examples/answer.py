"""answer.py LIBQUERN MODEL QUESTION: an answer by ctypes alone."""

import ctypes as c
import json
import sys

P, S = c.c_void_p, c.c_char_p


class Request(c.Structure):  # quern_request as far as it is set here
    _fields_ = [("messages", S), ("tools", S), ("variables", S),
                ("add_generation_prompt", c.c_bool), ("prompt", S),
                ("ids", P), ("id_count", c.c_size_t),
                ("temperature", c.c_double), ("rest", c.c_char * 1024)]


class Event(c.Structure):  # quern_event as far as it is read here
    _fields_ = [("type", c.c_int), ("done", c.c_int64), ("total", c.c_int64),
                ("text", S)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("where", c.c_char * 1024),
                ("message", c.c_char * 1024)]


quern = c.CDLL(sys.argv[1])
error, model, session, request = Error(), P(), P(), Request()


def check(status):
    if status:
        sys.exit(error.message.decode())


@c.CFUNCTYPE(c.c_bool, P, c.POINTER(Event))
def on_event(data, event):
    if event.contents.type == 2:  # QUERN_EVENT_TEXT
        print(event.contents.text.decode(), end="", flush=True)
    return True


check(quern.quern_model_load(c.byref(model), sys.argv[2].encode(), None, c.byref(error)))
check(quern.quern_session_new(c.byref(session), model, c.byref(error)))
quern.quern_request_init(c.byref(request), model)
request.messages = json.dumps([{"role": "user", "content": sys.argv[3]}]).encode()
request.temperature = 0
check(quern.quern_generate(session, c.byref(request), on_event, None, None, c.byref(error)))
print()
quern.quern_session_free(session)
quern.quern_model_free(model)
