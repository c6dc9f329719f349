# Sourced by ./check and the scripts beside it: how what they need is installed where it is missing.

# apt_install PACKAGE...
apt_install() {
  command -v apt-get > /dev/null || { echo "$1 is missing; install it and run this again" >&2; return 1; }
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# services_off SERVICE...: stops the services that packages have just started; the tests start what they need themselves.
services_off() {
  if [ -d /run/systemd/system ]; then as_root systemctl disable --now "$@"; fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
