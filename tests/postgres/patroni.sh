# Sourced by tests/tools and pair.sh: Patroni, with etcd and HAProxy.

# A dead primary is replaced when its lock has expired. Patroni needs loop + 2 * retry <= ttl, so 3, 1 and 1 work as well, but leave
# a busy machine less time to renew the lock.
TTL_SECS=5 LOOP_SECS=1 RETRY_SECS=2
HEALTH_MILLIS=500

haproxy=''

patroni_install() {
  type -P patroni > /dev/null || apt_install_service patroni patroni python3-etcd
  type -P etcd > /dev/null || apt_install_service etcd etcd-server
  find_haproxy || { apt_install_service haproxy haproxy && find_haproxy; }
}
# Debian has it in /usr/sbin.
find_haproxy() { haproxy=$(PATH=$PATH:/usr/sbin type -P haproxy); }

# patroni_settings NAME
# With etcd's version 3 interface, Debian's Patroni (3.0.2) loses commits: a primary that was frozen may take the lock from its
# successor without a comparison. Patroni 3.0.3 corrects that.
patroni_settings() {
  local nosync=${sync:+, no-sync}
  cat <<YAML
scope: payferry
name: $1
etcd: {host: "$address:${port[etcd]}"}
restapi: {listen: "$address:${port[$1_rest]}", connect_address: "$address:${port[$1_rest]}"}
bootstrap:
  dcs:
    ttl: $TTL_SECS
    loop_wait: $LOOP_SECS
    retry_timeout: $RETRY_SECS
    synchronous_mode: true
    postgresql: {parameters: {max_connections: $CONNECTIONS_MAX}}
postgresql:
  listen: $address:${port[$1]}
  connect_address: $address:${port[$1]}
  data_dir: $folder/$1/data
  bin_dir: $programs
  pgpass: $folder/$1/pgpass
  # A server that rejoins copies the data anew: pg_rewind would sync all of it.
  remove_data_directory_on_diverged_timelines: true
  basebackup: [checkpoint: fast$nosync]
  authentication: {superuser: {username: postgres}, replication: {username: postgres}}
YAML
}

proxy_settings() {
  cat <<CFG
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
listen primary
  bind $address:${port[proxy]}
  option httpchk OPTIONS /primary
  default-server check inter $HEALTH_MILLIS fall 1 rise 1 on-marked-down shutdown-sessions
  server p1 $address:${port[p1]} port ${port[p1_rest]}
  server p2 $address:${port[p2]} port ${port[p2_rest]}
CFG
}
