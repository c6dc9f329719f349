#!/usr/bin/env bash
# Starts two cells side by side: two sandboxes, and a HAProxy that routes by host name. Needs haproxy and curl.
#
#   docs/src/examples/cells.sh [--check] [PAYFERRY]
#
# PAYFERRY is the binary (target/debug/payferry if absent). With --check, it makes a payment in each cell, shows that the key of
# one cell is unknown in the other, and ends. Otherwise it runs until ctrl-c.
set -euo pipefail

check=
if [ "${1:-}" = --check ]; then check=1; shift; fi
payferry=${1:-target/debug/payferry}
port=${CELLS_PORT:-18080}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; wait; rm -rf "$folder"' EXIT

# start_cell NAME PORT: a whole deployment, with its own database, chains, contract, signers and PSPs.
start_cell() {
  PAYFERRY_SERVER__PUBLIC_URL="http://$1.cells.localhost:$port/" "$payferry" sandbox --ephemeral --json \
    --listen "127.0.0.1:$2" --operator-listen "127.0.0.1:$(($2 + 1))" > "$folder/$1.json" 2> "$folder/$1.log" &
}
# text CELL KEY: a text in the line that a cell prints when it is ready.
text() { sed -n "s/.*\"$2\":\"\([^\"]*\)\".*/\1/p" "$folder/$1.json"; }

start_cell a $((port + 10))
start_cell b $((port + 20))
for cell in a b; do
  for _ in $(seq 600); do
    if [ -s "$folder/$cell.json" ]; then break; fi
    sleep 0.1
  done
  if [ ! -s "$folder/$cell.json" ]; then cat "$folder/$cell.log" >&2; exit 1; fi
done

cat > "$folder/haproxy.cfg" << CONFIG
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s

frontend cells
  bind 127.0.0.1:$port
  use_backend cell_a if { req.hdr(host),field(1,:) -i a.cells.localhost }
  use_backend cell_b if { req.hdr(host),field(1,:) -i b.cells.localhost }
  default_backend unknown

backend cell_a
  server a 127.0.0.1:$((port + 10))
backend cell_b
  server b 127.0.0.1:$((port + 20))
backend unknown
  http-request return status 404 content-type text/plain string "no such cell"
CONFIG
haproxy -q -db -f "$folder/haproxy.cfg" &
for _ in $(seq 100); do
  if curl -s -o "$folder/answer" "http://127.0.0.1:$port/"; then break; fi
  sleep 0.1
done

# request CELL KEY PATH BODY: the HTTP status; the body is in $folder/answer.
request() {
  curl -s -o "$folder/answer" -w '%{http_code}' --resolve "$1.cells.localhost:$port:127.0.0.1" \
    -H "Authorization: Bearer $2" -H 'Content-Type: application/json' -H "Idempotency-Key: $RANDOM-$RANDOM" \
    -d "$4" "http://$1.cells.localhost:$port$3"
}

for cell in a b; do
  echo "cell $cell: http://$cell.cells.localhost:$port   PSP $(text "$cell" psp_id)   API key $(text "$cell" api_key)"
done
if [ -z "$check" ]; then
  echo 'Running until ctrl-c.'
  wait
fi

merchant='{"merchants":[{"external_id":"shop","name":"Shop","email":"owner@shop.example","business_id":"1"}]}'
for cell in a b; do
  key=$(text "$cell" api_key)
  [ "$(request "$cell" "$key" /merchants/sync "$merchant")" = 200 ] || { cat "$folder/answer" >&2; exit 1; }
  id=$(sed -n 's/.*"merchant_id":"\([^"]*\)".*/\1/p' "$folder/answer")
  payment="{\"merchant_id\":\"$id\",\"amount\":\"10\",\"currency\":\"USDC\",\"chain\":\"base\"}"
  status=$(request "$cell" "$key" /payments/initiate "$payment")
  case $status in 200 | 201) ;; *) cat "$folder/answer" >&2; exit 1 ;; esac
  grep -q "\"magic_link\":\"http://$cell.cells.localhost:$port/" "$folder/answer" || { cat "$folder/answer" >&2; exit 1; }
done
[ "$(request b "$(text a api_key)" /merchants/sync "$merchant")" = 401 ] || { cat "$folder/answer" >&2; exit 1; }
echo 'Each cell took a payment of its PSP, and refused the key of the other.'
