#!/usr/bin/env bash
# Controls the servers of one pair. PAYFERRY_TEST_PAIR_CONTROL (tests/with-postgres) is this script with its first argument set.
#
#   control.sh FOLDER COMMAND [NAME]
#
#   start NAME             starts a server; returns when it accepts connections
#   stop NAME [immediate]  stops it in order, or with pg_ctl's mode `immediate` (only --standby)
#   kill NAME              kills all its processes with SIGKILL, PostgreSQL together with its Patroni
#   freeze NAME            suspends all its processes (SIGSTOP), which keep their connections
#   thaw NAME              continues them (SIGCONT)
#   promote NAME           makes the standby the primary, without a standby of its own (only --standby: Patroni promotes by itself)
#   rejoin NAME            makes a server the synchronous standby of the other one: kills it and copies the data anew; with
#                          --patroni the same as `start` and `synced`
#   base NAME              takes a base backup, and archives the log from then on (only --standby)
#   recover NAME [TIME]    kills a server whose log is archived, and starts it from the base backup and the log: up to this time, or
#                          to the end
#   writable NAME          waits until the server, or a server behind proxy, accepts writes
#   synced                 waits until the primary has a synchronous standby
#   primary                prints the name of each server that accepts writes, one a line: none during a failover, two after a split
#   log NAME               prints the log
#
# NAME is p1 or p2; with --patroni also etcd or proxy. An error is printed with the logs, and the exit code is 1. After `promote`,
# `start` makes the previous primary a second primary on an older timeline; its commits wait for ever. Patroni, however, lets a
# primary that has no standby commit alone.
set -euo pipefail

# How long a server may take to start, stop, promote or become synchronous.
WAIT_SECS=60
# libpq does not accept less.
CONNECT_SECS=2
SQL_SECS=5
# Lines of each log that are printed with an error.
LOG_LINES=40

folder=$1 command=${2:-} name=${3:-} option=${4:-}
fail() { echo "control: $*" >&2; exit 1; }
# Written by pair.sh: mode, programs, haproxy, as_server, sync, address, port.
source "$folder/pair"

# processes [NAME]: process ids of a server, or of the whole pair: those with a working folder in its folder. That includes all
# children of the servers, and running commands of this script.
processes() {
  local place=$folder${1:+/$1}
  find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$place" -o -lname "$place/*" -o -lname "$place (deleted)" \) 2> /dev/null \
    | cut -d / -f 3 || true
}
is_gone() { [ -z "$(processes "${1:-}")" ]; }
expect_running() { ! is_gone "$name" || fail "$name is not running"; }
# signal SIGNAL [NAME]
signal() {
  local ids
  mapfile -t ids < <(processes "${2:-}")
  kill "-$1" "${ids[@]}" 2> /dev/null
}

# wait_for PROBLEM CONDITION...
wait_for() {
  local end=$((SECONDS + WAIT_SECS))
  until "${@:2}"; do
    [ "$SECONDS" -lt "$end" ] || { tail -n $LOG_LINES "$folder"/*.log >&2; fail "$1 within $WAIT_SECS s"; }
    sleep 0.05
  done
}

# Conditions to wait for. The first two signal again, because a process may fork after it was listed.
has_died() { is_gone "$1" || { signal KILL "$1" || true; false; }; }
is_frozen() {
  local before
  before=$(processes "$1")
  signal STOP "$1" && [ "$(processes "$1")" = "$before" ]
}
has_started() {
  if accepts; then return; fi
  kill -0 "$(cat "$name.pid")" 2> /dev/null || { cat "$name.log" >&2; fail "$name has ended"; }
  false
}
is_writable() { [ "$(sql "$1" 'SELECT pg_is_in_recovery()')" = f ]; }
is_synced() {
  local server
  server=$(primary)
  [[ $server =~ ^p[12]$ ]] || return 1
  [ "$(sql "$server" "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')")" = 1 ] \
    && { [ "$mode" = standby ] || is_candidate "$(other "$server")"; }
}
# is_candidate NAME: Patroni promotes only the standby that etcd names, which happens after PostgreSQL has it.
is_candidate() (
  exec 3<> "/dev/tcp/$address/${port[$1_rest]}"
  printf 'OPTIONS /synchronous HTTP/1.0\r\n\r\n' >&3
  read -r -t $SQL_SECS _ code _ <&3
  [ "$code" = 200 ]
) 2> /dev/null

# sql NAME STATEMENT
sql() {
  PGCONNECT_TIMEOUT=$CONNECT_SECS timeout "$SQL_SECS" \
    "$programs/psql" -X -q -t -A -h "$address" -p "${port[$1]}" -U postgres -d postgres -c "$2" 2> /dev/null
}
other() { if [ "$1" = p1 ]; then echo p2; else echo p1; fi; }
accepts() {
  case $name in
    p1 | p2) sql "$name" 'SELECT' > /dev/null ;;
    *) (exec 3<> "/dev/tcp/$address/${port[$name]}") 2> /dev/null ;;
  esac
}
primary() {
  local server
  for server in p1 p2; do
    if is_writable "$server"; then echo "$server"; fi
  done
}

# launch PROGRAM...: in a process group of its own, which a signal to the test's group does not reach.
launch() {
  set -m
  (cd "$name" && exec "${as_server[@]}" "$@" < /dev/null >> "$folder/$name.log" 2>&1) &
  set +m
  echo $! > "$name.pid"
}
start() {
  is_gone "$name" || fail "$name is running"
  case $mode:$name in
    standby:*) launch "$programs/postgres" -D data -p "${port[$name]}" ;;
    *:etcd)
      local url=http://$address:${port[etcd]} peer=http://$address:${port[etcd_peer]}
      launch etcd --name etcd --data-dir data --enable-v2 --logger zap --log-level warn \
        --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "etcd=$peer"
      ;;
    *:proxy) launch "$haproxy" -db -f "$folder/proxy.cfg" ;;
    *) launch patroni "$folder/$name.yml" ;;
  esac
  wait_for "$name has not started" has_started
}

stop() {
  local how=TERM
  case $mode:$option in
    standby:) how=INT ;;
    standby:immediate) how=QUIT ;;
    *:?*) fail "unknown mode $option" ;;
  esac
  expect_running
  kill "-$how" "$(cat "$name.pid")"
  wait_for "$name has not stopped" is_gone "$name"
}

kill_server() {
  wait_for "$name has not died" has_died "$name"
  clean_up "$name"
}
# clean_up NAME: removes what a killed server leaves: its shared memory, which only its next start would remove, and its process id,
# which PostgreSQL takes for running until the process is reaped.
clean_up() {
  local file=$folder/$1/data/postmaster.pid id
  if [ ! -e "$file" ]; then return; fi
  id=$(sed -n '7s/.* //p' "$file")
  if [ -n "$id" ]; then "${as_server[@]}" ipcrm -m "$id" 2> /dev/null || true; fi
  rm -f "$file"
}

rejoin() {
  local other
  other=$(other "$name")
  is_writable "$other" || fail "$other is not the primary"
  kill_server
  rm -rf "$name/data"
  (cd "$name" && "${as_server[@]}" "$programs/pg_basebackup" -D data -R -c fast "${sync[@]}" \
    -d "host=$address port=${port[$other]} user=postgres application_name=$name") >> "$name.log" 2>&1 \
    || { cat "$name.log" >&2; fail "$name cannot copy $other"; }
  # The other server's setting, which would stop the writes of this one after its promotion.
  echo "synchronous_standby_names = ''" >> "$name/data/postgresql.auto.conf"
  start
  sql "$other" "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ($name)'"
  sql "$other" 'SELECT pg_reload_conf()' > /dev/null
}

is_archiving() { [ "$(sql "$name" "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'pg_receivewal'")" = 1 ]; }
is_archived() {
  [ "$(sql "$name" "SELECT flush_lsn >= pg_current_wal_flush_lsn() FROM pg_stat_replication WHERE application_name = 'pg_receivewal'")" = t ]
}
base() {
  local server="host=$address port=${port[$name]} user=postgres"
  (cd "$name" && "${as_server[@]}" mkdir archive)
  (cd "$name" && "${as_server[@]}" "$programs/pg_receivewal" -S archive --create-slot -d "$server") >> "$name.log" 2>&1
  set -m
  (cd "$name" && exec "${as_server[@]}" "$programs/pg_receivewal" -D archive -S archive --synchronous -d "$server" \
    < /dev/null >> "$folder/$name.log" 2>&1) &
  set +m
  wait_for "the log of $name is not archived" is_archiving
  (cd "$name" && "${as_server[@]}" "$programs/pg_basebackup" -D base -c fast "${sync[@]}" -d "$server") >> "$name.log" 2>&1 \
    || { cat "$name.log" >&2; fail "$name cannot be copied"; }
}
recover() {
  if ! is_gone "$name"; then wait_for "the log of $name is not archived" is_archived; fi
  kill_server
  rm -rf "$name/data"
  (cd "$name" && "${as_server[@]}" cp -a base data && "${as_server[@]}" touch data/recovery.signal)
  # The newest file of the archive is not complete.
  cat >> "$name/data/postgresql.auto.conf" <<SETTINGS
synchronous_standby_names = ''
restore_command = 'cp ../archive/%f %p || cp ../archive/%f.partial %p'
recovery_target_action = 'promote'
SETTINGS
  if [ -n "$option" ]; then echo "recovery_target_time = '$option'" >> "$name/data/postgresql.auto.conf"; fi
  start
  wait_for "$name does not accept writes" is_writable "$name"
}

# A command that was running may have started another process; it cannot after its folder is gone.
is_removed() {
  if is_gone && [ ! -e "$folder" ]; then return; fi
  signal KILL || { clean_up p1; clean_up p2; rm -rf "$folder"; }
  false
}

# Only `remove` must survive the end of the pair.
if [ "$command" != remove ]; then cd "$folder"; fi
case $command in
  synced | primary | remove) ;;
  start | stop | kill | freeze | thaw | promote | rejoin | base | recover | writable | log)
    [[ $name =~ ^(p1|p2|etcd|proxy)$ && -d $name ]] || fail "no server has the name '$name'"
    ;;
  *) fail "unknown command '$command'" ;;
esac
case $command in
  start) start ;;
  stop) stop ;;
  kill) kill_server ;;
  freeze) expect_running && wait_for "$name is not frozen" is_frozen "$name" ;;
  thaw) expect_running && signal CONT "$name" ;;
  promote)
    [ "$mode" = standby ] || fail 'Patroni promotes by itself'
    (cd "$name" && "${as_server[@]}" "$programs/pg_ctl" promote -D data -w -t $WAIT_SECS -s)
    ;;
  rejoin)
    if [ "$mode" = standby ]; then rejoin; else start; fi
    wait_for 'no standby is synchronous' is_synced
    ;;
  base | recover)
    [ "$mode" = standby ] || fail 'Patroni recovers by itself'
    "$command"
    ;;
  writable) wait_for "$name does not accept writes" is_writable "$name" ;;
  synced) wait_for 'no standby is synchronous' is_synced ;;
  primary) primary ;;
  log) cat "$name.log" ;;
  remove) wait_for 'the pair has not ended' is_removed ;;
esac
