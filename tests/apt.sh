# Sourced by ./check and the scripts beside it: how what they need is installed where it is missing.

# apt_install PACKAGE...
apt_install() {
  command -v apt-get > /dev/null || { echo "$1 is missing; install it and run this again" >&2; return 1; }
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# apt_install_service SERVICE PACKAGE...: stops the service that the package starts; tests start their own servers.
apt_install_service() {
  apt_install "${@:2}" >&2
  if [ -d /run/systemd/system ]; then
    as_root systemctl disable --quiet --now "$1" >&2
  else
    # Fails if the package has not started it.
    as_root service "$1" stop >&2 || true
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
