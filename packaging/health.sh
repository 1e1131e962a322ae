#!/bin/bash
# health.sh [PORT]: succeeds when the server on this machine answers requests.
# Needs bash alone, which opens connections itself: the image has no curl.
# bash writes a line at a time, and a server may close after the first: that
# is an unhealthy server (exit 1), not a death by SIGPIPE.
trap '' PIPE
exec 3<>"/dev/tcp/127.0.0.1/${1:-8080}" || exit 1
printf 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
read -r -t 3 -u 3 _ status _
[ "$status" = 200 ]
