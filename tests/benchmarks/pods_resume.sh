#!/bin/bash
# ResumeProgram of the floor in real pods: one PATCH of the worker set, and no more. `api` beside it sets URL and TOKEN.
exec </dev/null >/dev/null 2>&1
export PATH=/usr/bin:/bin
# shellcheck source=/dev/null
. "${0%/*}/api"
numbers=$(scontrol show hostnames "$1" | sed 's/.*-//' | sort -n)
first=$(head -n 1 <<<"$numbers") last=$(tail -n 1 <<<"$numbers")
curl -sS -m 5 -k -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/merge-patch+json' -X PATCH \
    -d "{\"spec\":{\"replicas\":$((last - first + 1)),\"ordinals\":{\"start\":$first}}}" "$URL"
