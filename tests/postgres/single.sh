# Sourced by tests/with-postgres: one server with TLS and a small tablespace.

PORT_ATTEMPTS=20
# Below Linux's ephemeral ports, so that no outgoing connection takes the port between the check and the server's start.
PORT_FIRST=20000 PORTS=10000
# Size of the file system that tests of a full disk fill: the tablespace `small`.
SMALL_SIZE=24m

server_install() { command -v openssl > /dev/null || apt_install openssl >&2; }
server_open() { cd_folder server_folders data small; }

# server_start: with the settings in $folder/settings.
server_start() {
  local small in_view port candidate attempt
  create_cluster data
  cd_folder certificate > "$folder/openssl.log" 2>&1 || { cat "$folder/openssl.log" >&2; exit 1; }
  cat >> "$folder/settings" <<SETTINGS
ssl = on
ssl_cert_file = 'server.crt'
ssl_key_file = 'server.key'
SETTINGS
  printf '%s\n' 'hostnossl all tls_only 127.0.0.1/32 reject' | cat - "$folder/data/pg_hba.conf" > "$folder/hba"
  cat "$folder/hba" > "$folder/data/pg_hba.conf"
  cat "$folder/settings" >> "$folder/data/postgresql.conf"

  # The server gets its own mount namespace with a small file system that tests of a full disk fill. The file system is
  # removed with the server. Where the kernel does not permit that, there is no tablespace `small`.
  small=(sh -c "mount -t tmpfs -o size=$SMALL_SIZE,uid=$server_uid,mode=0700 tmpfs small && exec \"\$@\"" sh)
  if [ "$(id -u)" = 0 ]; then
    in_view=(unshare --mount "${small[@]}")
  else
    in_view=(unshare --user --map-current-user --keep-caps --mount "${small[@]}")
  fi
  if ! cd_folder "${in_view[@]}" true 2> /dev/null; then in_view=(); fi

  port=''
  for ((attempt = 1; attempt <= PORT_ATTEMPTS; attempt++)); do
    candidate=$((PORT_FIRST + RANDOM % PORTS))
    if (exec 3<> "/dev/tcp/127.0.0.1/$candidate") 2> /dev/null; then continue; fi
    # Output goes to a file, including the server's, which would otherwise keep a pipe of this script open.
    if cd_folder "${in_view[@]}" "${as_server[@]}" "$programs/pg_ctl" start -D data -w -t 60 -o "-p $candidate" \
      > "$folder/server.log" 2>&1; then
      port=$candidate
      break
    fi
    # If another process took the port meanwhile, try another one. Any other error would repeat.
    grep -q 'Address already in use' "$folder/server.log" || break
  done
  if [ -z "$port" ]; then cat "$folder/server.log" >&2; exit 1; fi
  "$programs/psql" -X -q -h 127.0.0.1 -p "$port" -U postgres -d postgres -c 'CREATE ROLE tls_only LOGIN SUPERUSER'
  if [ ${#in_view[@]} != 0 ]; then
    "$programs/psql" -X -q -h 127.0.0.1 -p "$port" -U postgres -d postgres -c "CREATE TABLESPACE small LOCATION '$folder/small'"
  fi

  export PAYFERRY_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port" PAYFERRY_TEST_POSTGRES_ROOT="$folder/root.pem"
}

# The server's certificate and the root certificate that signs it.
certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=Payferry test root' \
    -keyout root.key -out root.pem
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout data/server.key -out server.csr
  openssl x509 -req -in server.csr -CA root.pem -CAkey root.key -days 30 -copy_extensions copy -out data/server.crt
  chmod 600 data/server.key
  if [ "$(id -u)" = 0 ]; then chown "$user" data/server.key; fi
}

server_runs() { true; }
server_close() {
  if [ -e "$folder/data/postmaster.pid" ]; then
    cd_folder "${as_server[@]}" "$programs/pg_ctl" stop -D data -m immediate -s || true
  fi
}
