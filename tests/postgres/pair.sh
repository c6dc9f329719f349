# Sourced by tests/with-postgres: a primary with a synchronous standby, or two servers of Patroni with etcd and HAProxy.

# Each pair has its own loopback address, so that its ports are free, also while a server is stopped. Below Linux's ephemeral
# ports.
declare -A port=([p1]=25431 [p2]=25432 [proxy]=25430 [p1_rest]=28001 [p2_rest]=28002 [etcd]=22379 [etcd_peer]=22380)

source "$here/postgres/patroni.sh"

# server_open: starts the guard, a process that removes the pair when its input ends: when this script closes it, and when this
# script is killed. The input is a coprocess's, because commands do not inherit that from bash. The guard has its own process
# group, so it outlives a signal to the group of this script.
server_open() {
  folder=$(cd "$folder" && pwd -P)
  address=127.$((1 + RANDOM % 254)).$((RANDOM % 256)).$((1 + RANDOM % 254))
  declare -p mode programs haproxy as_server sync address port > "$folder/pair"
  set -m
  coproc GUARD {
    trap '' INT TERM HUP
    exec > /dev/null 2>&1
    running=''
    while read -r command; do running=$command; done
    if [ -n "$running" ]; then kill -TERM "$running" || true; fi
    exec "$here/postgres/control.sh" "$folder" remove
  }
  set +m
  guard=$GUARD_PID guard_input=${GUARD[1]}
}
# server_runs [ID]: the process of the running command, which the guard ends if this script is killed.
server_runs() { echo "${1:-}" >&"$guard_input" || true; }
server_close() {
  if [ -z "${guard:-}" ]; then return; fi
  server_runs
  exec {guard_input}>&-
  wait "$guard" || echo "with-postgres: cannot remove $folder or its processes" >&2
}

server_install() { if [ "$mode" = patroni ]; then patroni_install; fi; }

# server_start: with the settings in $folder/settings.
server_start() {
  local servers=(p1 p2) control=$folder/control
  if [ "$mode" = patroni ]; then servers+=(etcd proxy); fi
  cd_folder server_folders "${servers[@]}"
  printf '#!/bin/sh\nexec %q %q "$@"\n' "$here/postgres/control.sh" "$folder" > "$control"
  chmod +x "$control"

  create_cluster p1/data
  sed 's,127.0.0.1/32,127.0.0.0/8,' "$folder/p1/data/pg_hba.conf" > "$folder/hba"
  cat "$folder/hba" > "$folder/p1/data/pg_hba.conf"
  # A killed server leaves no file outside of its folder. A standby that was stopped finds all WAL, and reconnects at once.
  cat >> "$folder/settings" <<SETTINGS
listen_addresses = '$address'
dynamic_shared_memory_type = mmap
wal_keep_size = 1GB
wal_retrieve_retry_interval = 200ms
SETTINGS
  cat "$folder/settings" >> "$folder/p1/data/postgresql.conf"

  if [ "$mode" = patroni ]; then
    patroni_settings p1 > "$folder/p1.yml"
    patroni_settings p2 > "$folder/p2.yml"
    proxy_settings > "$folder/proxy.cfg"
    "$control" start etcd
    "$control" start proxy
  fi
  "$control" start p1
  # Before that, p2 would make a cluster of its own.
  "$control" writable p1
  "$control" rejoin p2

  local server=postgres://postgres@$address rest=http://$address
  export PAYFERRY_TEST_POSTGRES=$server:${port[p1]}
  export PAYFERRY_TEST_PAIR=$server:${port[p1]},$server:${port[p2]} PAYFERRY_TEST_PAIR_CONTROL=$control
  unset PAYFERRY_TEST_POSTGRES_ROOT PAYFERRY_TEST_PAIR_REST PAYFERRY_TEST_PAIR_PROXY
  if [ "$mode" = patroni ]; then
    export PAYFERRY_TEST_PAIR_REST=$rest:${port[p1_rest]},$rest:${port[p2_rest]} PAYFERRY_TEST_PAIR_PROXY=$server:${port[proxy]}
  fi
}
